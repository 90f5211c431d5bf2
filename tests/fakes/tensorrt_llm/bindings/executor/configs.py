"""What an executor is made with: names and defaults of the bindings, which are not always those of the C++ headers."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, auto
from typing import Any


class CapacitySchedulerPolicy(Enum):
    MAX_UTILIZATION = auto()
    GUARANTEED_NO_EVICT = auto()
    STATIC_BATCH = auto()


class CommunicationType(Enum):
    MPI = auto()


class CommunicationMode(Enum):
    LEADER = auto()
    ORCHESTRATOR = auto()


@dataclass
class SchedulerConfig:
    capacity_scheduler_policy: CapacitySchedulerPolicy = CapacitySchedulerPolicy.GUARANTEED_NO_EVICT
    context_chunking_policy: Any = None
    dynamic_batch_config: Any = None

    def __post_init__(self) -> None:
        _typed(self.capacity_scheduler_policy, CapacitySchedulerPolicy)


@dataclass
class KvCacheConfig:
    enable_block_reuse: bool = True
    max_tokens: int | None = None
    max_attention_window: list[int] | None = None
    sink_token_length: int | None = None
    free_gpu_memory_fraction: float | None = None
    host_cache_size: int | None = None
    onboard_blocks: bool = True
    cross_kv_cache_fraction: float | None = None
    secondary_offload_min_priority: int | None = None
    event_buffer_max_size: int = 0
    _: KW_ONLY
    enable_partial_reuse: bool = True
    copy_on_partial_reuse: bool = True
    use_uvm: bool = False
    attention_dp_events_gather_period_ms: int = 5
    runtime_defaults: Any = None
    max_gpu_total_bytes: int = 0

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            _typed(self.max_tokens, int)
        fraction = self.free_gpu_memory_fraction
        if fraction is not None and not 0 < fraction < 1:
            raise RuntimeError("freeGpuMemoryFraction must be in (0, 1)")


@dataclass
class LookaheadDecodingConfig:
    max_window_size: int
    max_ngram_size: int
    max_verification_set_size: int

    def __post_init__(self) -> None:
        w, n, g = self.max_window_size, self.max_ngram_size, self.max_verification_set_size
        if not (w >= 1 and n >= 1 and g >= 0 and (n > 1 or (w == 1 and g == 0))):
            raise RuntimeError("lookahead decoding config is not legal")

    @staticmethod
    def calculate_speculative_resource_tuple(
        window_size: int, ngram_size: int, verification_set_size: int
    ) -> tuple[int, int, int, int]:
        guesses = (window_size - 1 + verification_set_size) * (ngram_size - 1)
        max_draft_tokens = (0 if ngram_size == 1 else ngram_size - 2) + guesses
        return max_draft_tokens + 1, ngram_size, max_draft_tokens, ngram_size - 1


class DecodingMode(Enum):
    AUTO = auto()
    LOOKAHEAD = auto()

    @staticmethod
    def Auto() -> "DecodingMode":  # noqa: N802  # the bindings' own spelling
        return DecodingMode.AUTO

    @staticmethod
    def Lookahead() -> "DecodingMode":  # noqa: N802
        return DecodingMode.LOOKAHEAD


@dataclass
class DecodingConfig:
    decoding_mode: DecodingMode | None = None
    lookahead_decoding_config: LookaheadDecodingConfig | None = None
    medusa_choices: Any = None
    eagle_config: Any = None


@dataclass
class OrchestratorConfig:
    is_orchestrator: bool = True
    worker_executable_path: str = ""
    orch_leader_comm: Any = None
    spawn_processes: bool = True

    def __post_init__(self) -> None:
        _typed(self.worker_executable_path, str)


@dataclass
class ParallelConfig:
    communication_type: CommunicationType = CommunicationType.MPI
    communication_mode: CommunicationMode = CommunicationMode.LEADER
    device_ids: Sequence[int] | None = None
    participant_ids: Sequence[int] | None = None
    orchestrator_config: OrchestratorConfig | None = None
    num_nodes: int | None = None

    def __post_init__(self) -> None:
        _typed(self.communication_mode, CommunicationMode)
        if self.communication_mode is CommunicationMode.ORCHESTRATOR and self.orchestrator_config is None:
            raise RuntimeError("OrchestratorConfig must be set in ORCHESTRATOR mode")


@dataclass
class LogitsPostProcessorConfig:
    processor_map: Any = None
    processor_batched: Any = None
    replicate: bool = True


@dataclass
class ExecutorConfig:
    max_beam_width: int = 1
    scheduler_config: SchedulerConfig = field(default_factory=SchedulerConfig)
    kv_cache_config: KvCacheConfig = field(default_factory=KvCacheConfig)
    enable_chunked_context: bool = False
    normalize_log_probs: bool = True
    iter_stats_max_iterations: int = 1000
    request_stats_max_iterations: int = 0
    batching_type: Any = None
    max_batch_size: int | None = None
    max_num_tokens: int | None = None
    parallel_config: ParallelConfig | None = None
    peft_cache_config: Any = None
    logits_post_processor_config: LogitsPostProcessorConfig | None = None
    decoding_config: DecodingConfig | None = None
    use_gpu_direct_storage: bool = False
    gpu_weights_percent: float = 1.0
    max_queue_size: int | None = None
    extended_runtime_perf_knob_config: Any = None
    debug_config: Any = None
    recv_poll_period_ms: int = 0
    max_seq_idle_microseconds: int = 180_000_000
    spec_dec_config: Any = None
    guided_decoding_config: Any = None
    additional_model_outputs: Any = None
    cache_transceiver_config: Any = None
    gather_generation_logits: bool = False
    mm_embedding_offloading: bool = False
    enable_trt_overlap: bool = False
    fail_fast_on_attention_window_too_large: bool = False

    def __post_init__(self) -> None:
        if self.max_beam_width < 1:
            raise RuntimeError("maxBeamWidth must be above 0")
        _typed(self.kv_cache_config, KvCacheConfig)
        _typed(self.scheduler_config, SchedulerConfig)


def _typed(value: Any, kind: type) -> None:
    """The bindings take no value of another type, and no bool for an int."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"incompatible constructor arguments: {value!r} is no {kind.__name__}")
