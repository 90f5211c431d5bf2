"""The argument models: unknown names are errors, and so are those of the TensorRT backend."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

TRT_ONLY = (
    "enable_tqdm",
    "workspace",
    "fast_build",
    "calib_config",
    "quant_config",
    "embedding_parallel_mode",
    "enable_build_cache",
    "batching_type",
    "normalize_log_probs",
    "extended_runtime_perf_knob_config",
    "enable_prompt_adapter",
    "max_prompt_adapter_token",
)


class StrictBaseModel(BaseModel):
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class KvCacheConfig(StrictBaseModel):
    enable_block_reuse: bool = True
    max_tokens: int | None = None
    max_attention_window: list[int] | None = None
    sink_token_length: int | None = None
    free_gpu_memory_fraction: float = 0.9
    host_cache_size: int | None = None
    onboard_blocks: bool = True
    cross_kv_cache_fraction: float | None = None
    secondary_offload_min_priority: int | None = None
    event_buffer_max_size: int = 0
    attention_dp_events_gather_period_ms: int = 5
    enable_partial_reuse: bool = True
    copy_on_partial_reuse: bool = True
    use_uvm: bool = False
    max_gpu_total_bytes: int = 0
    dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    tokens_per_block: int = 32

    @field_validator("free_gpu_memory_fraction")
    @classmethod
    def _fraction(cls, value: float) -> float:
        if not 0 <= value <= 1:
            raise ValueError("kv_cache_config.free_gpu_memory_fraction must be between 0 and 1")
        return value

    @field_validator("max_attention_window")
    @classmethod
    def _window(cls, value: list[int] | None) -> list[int] | None:
        if value is not None and (not value or min(value) <= 0):
            raise ValueError("kv_cache_config.max_attention_window must contain positive integers")
        return value


class SchedulerConfig(StrictBaseModel):
    capacity_scheduler_policy: Literal["MAX_UTILIZATION", "GUARANTEED_NO_EVICT", "STATIC_BATCH"] = "GUARANTEED_NO_EVICT"
    context_chunking_policy: str | None = None
    dynamic_batch_config: Any = None


class CudaGraphConfig(StrictBaseModel):
    batch_sizes: list[int] | None = None
    max_batch_size: int = 0
    enable_padding: bool = False


class DecodingBaseConfig(StrictBaseModel):
    max_draft_len: int | None = None
    speculative_model_dir: str | None = None
    max_concurrency: int | None = None


class NGramDecodingConfig(DecodingBaseConfig):
    max_matching_ngram_size: int = 2
    is_keep_all: bool = True
    is_use_oldest: bool = True
    is_public_pool: bool = True


class EagleDecodingConfig(DecodingBaseConfig):
    eagle3_one_model: bool = True


class MTPDecodingConfig(DecodingBaseConfig):
    num_nextn_predict_layers: int = 1


class DraftTargetDecodingConfig(DecodingBaseConfig):
    pass


class LookaheadDecodingConfig(DecodingBaseConfig):
    max_window_size: int = 4
    max_ngram_size: int = 3
    max_verification_set_size: int = 4


class TorchLlmArgs(StrictBaseModel):
    model: str | Path
    tokenizer: Any = None
    tokenizer_mode: Literal["auto", "slow"] = "auto"
    skip_tokenizer_init: bool = False
    trust_remote_code: bool = False
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    context_parallel_size: int = 1
    gpus_per_node: int | None = None
    dtype: str = "auto"
    revision: str | None = None
    tokenizer_revision: str | None = None
    load_format: str = "auto"
    max_batch_size: int | None = 2048
    max_num_tokens: int | None = 8192
    max_seq_len: int | None = None
    max_input_len: int | None = 1024
    max_beam_width: int | None = 1
    kv_cache_config: KvCacheConfig = Field(default_factory=KvCacheConfig)
    scheduler_config: SchedulerConfig = Field(default_factory=SchedulerConfig)
    enable_chunked_prefill: bool = False
    guided_decoding_backend: Literal["xgrammar", "llguidance"] | None = None
    batched_logits_processor: Any = None
    speculative_config: DecodingBaseConfig | None = None
    enable_lora: bool = False
    lora_config: Any = None
    gather_generation_logits: bool = False
    num_postprocess_workers: int = 0
    return_perf_metrics: bool = False
    iter_stats_max_iterations: int | None = None
    request_stats_max_iterations: int | None = None
    orchestrator_type: Literal["rpc", "ray"] | None = None
    env_overrides: dict[str, str] | None = None
    disable_overlap_scheduler: bool = False
    attn_backend: str = "TRTLLM"
    sampler_type: str = "auto"
    enable_iter_perf_stats: bool = False
    enable_iter_req_stats: bool = False
    print_iter_log: bool = False
    stream_interval: int = 1
    cuda_graph_config: CudaGraphConfig | None = Field(default_factory=CudaGraphConfig)
    max_stats_len: int = 1000

    @property
    def world_size(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.context_parallel_size


def check_names(arguments: dict[str, Any]) -> None:
    for name in arguments:
        if name in TRT_ONLY:
            raise ValueError(f"{name} is not supported by the PyTorch backend")
        if name not in TorchLlmArgs.model_fields:
            raise ValueError(f"LLM got invalid argument: {name}")


def check_sampler(arguments: TorchLlmArgs) -> None:
    drafts = isinstance(arguments.speculative_config, (MTPDecodingConfig, EagleDecodingConfig))
    if arguments.sampler_type == "TRTLLMSampler" and drafts:
        raise ValueError("TRTLLMSampler does not support this speculative decoding mode")
