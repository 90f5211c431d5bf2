"""Behind the scenes: what a test may change of the fake, and what it may look at. `reset()` before each use."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Stage:
    step_s: float = 0.0
    """Least duration of a step."""
    hold_stats: bool = False
    """Statistics do not come yet."""
    hang_shutdown: bool = False
    """shutdown() never comes back."""
    refuse_abort: bool = False
    """Aborted requests never say that they are over."""
    stall: bool = False
    """The execution loop of a checkpoint has died, and nobody says so."""
    broken_steps: int = 0
    """How many of the next steps of an engine throw."""
    num_visible_gpus: int = 8
    arguments: list[Any] = field(default_factory=list)
    """Keyword arguments of every LLM and ExecutorConfig of every Executor that was made."""


STAGE = Stage()


def reset() -> Stage:
    """Put everything back and return the stage."""
    STAGE.__dict__.update(Stage().__dict__)
    return STAGE
