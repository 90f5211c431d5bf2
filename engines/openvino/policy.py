"""Policies of the scheduler: who may start to run, and who gives way when blocks run out.

Small objects that answer one question each; the names are TensorRT-LLM's. Both serve in order of (priority, arrival).
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Protocol

from engines.config import SchedulerPolicy
from engines.openvino.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Demand:
    """Blocks that a waiting sequence would take beyond those that others hold anyway."""

    num_prompt_blocks: int
    num_blocks: int
    """In its whole life, should it generate max_tokens."""


@dataclass(frozen=True, slots=True)
class Supply:
    """What there is to take them from."""

    num_available: int
    """Free blocks and cached ones that nobody uses."""
    num_promised: int
    """How many of these the running sequences take should they generate max_tokens."""
    num_running: int


class Policy(Protocol):
    """What the scheduler asks."""

    def may_admit(self, demand: Demand, supply: Supply) -> bool:
        """Whether a waiting sequence may start to run."""
        ...

    def choose_victim(self, running: Items[Sequence]) -> Sequence:
        """Who of the running sequences, first come first, is preempted when a block is missing."""
        ...


class GuaranteedNoEvict:
    """Admit only what can run to its end whatever the others do: nobody is ever preempted."""

    def may_admit(self, demand: Demand, supply: Supply) -> bool:
        """Whether the worst case of all running sequences and this one fits."""
        return demand.num_blocks <= supply.num_available - supply.num_promised

    def choose_victim(self, running: Items[Sequence]) -> Sequence:
        """Blocks cannot run out."""
        raise AssertionError("a sequence was admitted that did not fit")


class MaxUtilization:
    """Admit what fits now and preempt the last in line when blocks run out.

    The first in line is never preempted, so it ends, and then the next one is first: nobody starves.
    """

    def may_admit(self, demand: Demand, supply: Supply) -> bool:
        """Whether the prompt fits and leaves each running sequence, and this one, a block to grow into."""
        return demand.num_prompt_blocks + supply.num_running + 1 <= supply.num_available or not supply.num_running

    def choose_victim(self, running: Items[Sequence]) -> Sequence:
        """Take the one that is served last."""
        return max(running, key=lambda seq: seq.sort_key)


POLICIES: dict[SchedulerPolicy, type[Policy]] = {
    "guaranteed_no_evict": GuaranteedNoEvict,
    "max_utilization": MaxUtilization,
}
