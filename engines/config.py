"""How much of the machine an executor may use and how it schedules. Checked once, when it is made."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from engines.build_options import Lookahead

Precision = Literal["auto", "bf16", "f32"]
KVPrecision = Literal["auto", "u8"]
SchedulerPolicy = Literal["guaranteed_no_evict", "max_utilization"]
Speculation = Literal["none", "ngram", "draft_target", "eagle3", "mtp"]


@dataclass(frozen=True, slots=True)
class TensorRTLLMConfig:
    """Settings that only the TensorRT-LLM executor has, by the names they have there. Raises ValueError."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  # read by pydantic when it is made out of a table

    tensor_parallel_size: int = 1
    """GPUs that share each layer."""
    pipeline_parallel_size: int = 1
    """Groups of GPUs that the layers are spread over. All in all tensor x pipeline GPUs."""
    gpus_per_node: int | None = None
    """GPUs of a node where several nodes serve one model; None counts the visible ones."""
    dtype: Literal["auto", "float16", "bfloat16", "float32"] = "auto"
    """Of weights and activations; "auto" takes the checkpoint's."""
    load_format: Literal["auto", "dummy"] = "auto"
    """"dummy" serves random weights, to try a GPU out."""
    trust_remote_code: bool = False
    """Run Python code that comes with the checkpoint."""
    sampler: Literal["trtllm", "torch"] = "trtllm"
    """"trtllm" honours every sampling parameter; "torch" is newer, and refuses penalties, min_p and seeds."""
    gather_generation_logits: bool = False
    """Serve logprobs, at the cost of moving each token's logits to the host."""
    kv_cache_dtype: Literal["auto", "fp8"] = "auto"
    tokens_per_block: int = 32
    enable_block_reuse: bool = True
    """Reuse the KV blocks of equal prefixes."""
    host_cache_gib: float = 0.0
    """Host memory that takes in reusable blocks which the GPU has no room for."""
    max_attention_window: tuple[int, ...] = ()
    """Tokens that attention looks back, per layer and repeated over the layers; empty is the model's own."""
    enable_chunked_prefill: bool = True
    cuda_graphs: bool = True
    disable_overlap_scheduler: bool = False
    stream_interval: int = 1
    """Decode steps per output: higher costs the host less and bunches tokens."""
    speculation: Speculation = "none"
    """How tokens are guessed ahead."""
    speculative_model: str | None = None
    """Folder of the draft model: needed by "draft_target" and "eagle3"."""
    max_draft_len: int = 4
    """Tokens guessed per step."""
    lookahead: tuple[int, int, int] | None = None
    """Window, n-gram and verification set sizes of lookahead decoding (Fu et al. 2024), for engines built for it."""
    adapters: Mapping[str, Path] = field(default_factory=dict)
    """Folders of LoRA adapters as PEFT writes them, by the names of the models that they are served as."""
    max_loras: int | None = None
    """Adapters that fit the GPU at a time; None makes room for all."""
    max_cpu_loras: int | None = None
    """Adapters that the host's memory keeps at a time; None makes room for all."""
    shutdown_timeout_s: float = 30.0
    """How long TensorRT-LLM may take to stop before it is left behind."""

    def __post_init__(self) -> None:
        for name in ("tensor_parallel_size", "pipeline_parallel_size", "stream_interval", "max_draft_len"):
            _check(getattr(self, name) >= 1, f"{name} must be at least 1")
        _check(self.gpus_per_node is None or self.gpus_per_node >= 1, "gpus_per_node must be at least 1")
        block = self.tokens_per_block
        _check(block >= 1 and block & (block - 1) == 0, "tokens_per_block must be a power of 2")
        _check(self.host_cache_gib >= 0, "host_cache_gib must be at least 0")
        _check(all(window >= 1 for window in self.max_attention_window), "max_attention_window must be above 0")
        _check(self.shutdown_timeout_s > 0, "shutdown_timeout_s must be above 0")
        needs_model = self.speculation in ("draft_target", "eagle3")
        _check(
            needs_model == (self.speculative_model is not None),
            f"speculative_model must {'' if needs_model else 'not '}be given with speculation {self.speculation!r}",
        )
        _check(
            self.speculation == "none" or self.sampler == "torch",
            f'speculation {self.speculation!r} needs sampler = "torch"',
        )
        self._check_lookahead()
        self._check_adapters()
        # a streamed response has the logits of its last token only
        _check(
            self.stream_interval == 1 or not self.gather_generation_logits,
            "stream_interval must be 1 with gather_generation_logits",
        )
        _check(
            self.speculation == "none" or not self.gather_generation_logits,
            f"gather_generation_logits is not to be had with speculation {self.speculation!r}",
        )

    def _check_lookahead(self) -> None:
        if self.lookahead is None:
            return
        window, ngram, verification = self.lookahead
        _check(window >= 1 and ngram >= 2 and verification >= 0, "lookahead must be at least [1, 2, 0]")
        _check(self.speculation == "none", f"lookahead is not to be had beside speculation {self.speculation!r}")
        _check(not self.gather_generation_logits, "gather_generation_logits is not to be had with lookahead")

    def _check_adapters(self) -> None:
        for name in ("max_loras", "max_cpu_loras"):
            _check(getattr(self, name) is None or getattr(self, name) >= 1, f"{name} must be at least 1")
        if not self.adapters:
            return
        _check(all(self.adapters), "adapters need names that are not empty")
        # captured graphs leave them out (NVIDIA/TensorRT-LLM pull request 8279 mends a later release)
        _check(not self.cuda_graphs, "adapters need cuda_graphs = false")
        # NVIDIA/TensorRT-LLM issue 12617
        _check(self.speculation == "none", f"adapters are not to be had with speculation {self.speculation!r}")
        _check(self.pipeline_parallel_size == 1, "adapters need pipeline_parallel_size = 1")

    @property
    def num_lookahead_tokens(self) -> int:
        """Tokens guessed per step of lookahead decoding."""
        return 0 if self.lookahead is None else Lookahead(*self.lookahead).max_draft_len

    @property
    def world_size(self) -> int:
        """How many GPUs serve the model."""
        return self.tensor_parallel_size * self.pipeline_parallel_size


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
    trtllm: TensorRTLLMConfig = field(default_factory=TensorRTLLMConfig)

    def __post_init__(self) -> None:
        _check(0 < self.kv_cache_gib < math.inf, "kv_cache_gib must be above 0, and finite")
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
