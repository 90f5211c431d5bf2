"""How much of the machine an executor may use and how it schedules. Checked once, when it is made."""

from dataclasses import dataclass
from typing import Literal

Precision = Literal["auto", "bf16", "f32"]
KVPrecision = Literal["auto", "u8"]
SchedulerPolicy = Literal["guaranteed_no_evict", "max_utilization"]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one executor. Raises ValueError naming the field and what it allows."""

    kv_cache_gib: float = 2.0
    """Memory for the paged KV cache, in GiB."""
    kv_cache_fraction: float | None = None
    """In place of kv_cache_gib: a share of the memory that is free once the model is loaded, in (0, 1)."""
    max_batch_size: int = 32
    """Sequences that run at the same time."""
    max_num_tokens: int = 512
    """Token budget of one step, decodes and prefill chunks together."""
    max_waiting: int | None = None
    """Sequences that may wait beside the running ones before new ones are refused; None is 8 x max_batch_size."""
    max_sequence_length: int | None = None
    """Lowers the model's own context length, in tokens."""
    precision: Precision = "auto"
    """Arithmetic: "auto" is bf16 where the CPU has it; "f32" also keeps the KV cache in f32."""
    kv_cache_precision: KVPrecision = "auto"
    """"u8" halves the cache, at a loss; "auto" keeps keys and values as the forward pass computes them."""
    scheduler_policy: SchedulerPolicy = "guaranteed_no_evict"
    """Start only what surely can end, or ("max_utilization") what fits now, and preempt when the cache is full."""
    num_threads: int | None = None
    """CPU threads of the forward pass; None leaves it to the runtime."""

    def __post_init__(self) -> None:
        _check(self.kv_cache_gib > 0, "kv_cache_gib must be above 0")
        fraction = self.kv_cache_fraction
        _check(fraction is None or 0 < fraction < 1, "kv_cache_fraction must be between 0 and 1")
        _check(self.max_batch_size >= 1, "max_batch_size must be at least 1")
        # A step must hold every decode and still a prefill chunk worth computing.
        floor = self.max_batch_size + 16
        _check(self.max_num_tokens >= floor, f"max_num_tokens must be at least max_batch_size + 16 = {floor}")
        _check(self.max_waiting is None or self.max_waiting >= 0, "max_waiting must be at least 0")
        _check(
            self.max_sequence_length is None or self.max_sequence_length >= 2, "max_sequence_length must be at least 2"
        )
        _check(self.precision in ("auto", "bf16", "f32"), 'precision must be one of "auto", "bf16", "f32"')
        _check(self.kv_cache_precision in ("auto", "u8"), 'kv_cache_precision must be one of "auto", "u8"')
        _check(
            self.scheduler_policy in ("guaranteed_no_evict", "max_utilization"),
            'scheduler_policy must be one of "guaranteed_no_evict", "max_utilization"',
        )
        _check(self.num_threads is None or self.num_threads >= 1, "num_threads must be at least 1")

    @property
    def waiting_limit(self) -> int:
        """max_waiting with its default filled in."""
        return 8 * self.max_batch_size if self.max_waiting is None else self.max_waiting


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
