"""Our settings in TensorRT-LLM's words: the arguments of `tensorrt_llm.LLM`, before the package is imported.

Source of names and defaults: `TorchLlmArgs`, `KvCacheConfig` and the decoding configs, tensorrt_llm/llmapi/llm_args.py,
release 1.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engines.config import EngineConfig
from engines.trtllm.checkpoint import Checkpoint
from engines.trtllm.cpu_settings import refuse_cpu_settings
from engines.trtllm.errors import TensorRTLLMError
from engines.trtllm.runtime import import_part

SAMPLERS = {"trtllm": "TRTLLMSampler", "torch": "TorchSampler"}
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Deferred:
    """An object of TensorRT-LLM that is made once the package is there."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    module: str = "tensorrt_llm.llmapi"

    def build(self) -> Any:
        """Make the object. Raises TensorRTLLMError where this build has no such class."""
        made = getattr(import_part(self.module), self.name, None)
        if made is None:
            raise TensorRTLLMError(f"this build of TensorRT-LLM has no {self.name}")
        return made(**self.arguments)


def llm_arguments(checkpoint: Checkpoint, config: EngineConfig, max_sequence_length: int) -> dict[str, Any]:
    """Return the keyword arguments of LLM. Raises TensorRTLLMError for settings that it cannot have."""
    refuse_cpu_settings(config)
    own = config.trtllm
    if checkpoint.num_heads % own.tensor_parallel_size:
        raise TensorRTLLMError(
            f"tensor_parallel_size = {own.tensor_parallel_size} does not divide the {checkpoint.num_heads} attention "
            f"heads of {checkpoint.path.name}"
        )
    arguments: dict[str, Any] = {
        "model": str(checkpoint.path),
        "trust_remote_code": own.trust_remote_code,
        "tensor_parallel_size": own.tensor_parallel_size,
        "pipeline_parallel_size": own.pipeline_parallel_size,
        "dtype": own.dtype,
        "load_format": own.load_format,
        "max_batch_size": config.max_batch_size,
        "max_num_tokens": config.max_num_tokens,
        "max_seq_len": max_sequence_length,
        "max_beam_width": 1,
        "kv_cache_config": _kv_cache(checkpoint, config),
        "scheduler_config": Deferred("SchedulerConfig", {"capacity_scheduler_policy": config.scheduler_policy.upper()}),
        "enable_chunked_prefill": own.enable_chunked_prefill,
        "sampler_type": SAMPLERS[own.sampler],
        "disable_overlap_scheduler": own.disable_overlap_scheduler,
        "enable_iter_perf_stats": True,
        "stream_interval": own.stream_interval,
        "gather_generation_logits": own.gather_generation_logits,
        "cuda_graph_config": _cuda_graphs(config),
    }
    if own.gpus_per_node is not None:
        arguments["gpus_per_node"] = own.gpus_per_node
    if own.speculation == "none":
        arguments["guided_decoding_backend"] = "llguidance"
    else:
        arguments["speculative_config"] = _speculation(config)
    return arguments


def _kv_cache(checkpoint: Checkpoint, config: EngineConfig) -> Deferred:
    own = config.trtllm
    arguments: dict[str, Any] = {
        "enable_block_reuse": own.enable_block_reuse,
        "tokens_per_block": own.tokens_per_block,
        "dtype": own.kv_cache_dtype,
    }
    if config.kv_cache_fraction is not None:
        arguments["free_gpu_memory_fraction"] = config.kv_cache_fraction
    else:  # in tokens: the size in bytes is overwritten by TensorRT-LLM's own estimate
        per_token = checkpoint.shape.kv_bytes_per_token(
            own.kv_cache_dtype, own.tensor_parallel_size, own.pipeline_parallel_size
        )
        arguments["max_tokens"] = int(config.kv_cache_gib * GIB) // per_token
    if own.host_cache_gib:
        arguments["host_cache_size"] = int(own.host_cache_gib * GIB)
    if own.max_attention_window:
        arguments["max_attention_window"] = list(own.max_attention_window)
    return Deferred("KvCacheConfig", arguments)


def _cuda_graphs(config: EngineConfig) -> Deferred | None:
    if not config.trtllm.cuda_graphs:
        return None
    return Deferred("CudaGraphConfig", {"max_batch_size": config.max_batch_size, "enable_padding": True})


def _speculation(config: EngineConfig) -> Deferred:
    own = config.trtllm
    drafts: dict[str, Any] = {"max_draft_len": own.max_draft_len}
    if own.speculation == "ngram":
        return Deferred("NGramDecodingConfig", drafts)
    if own.speculation == "mtp":
        return Deferred("MTPDecodingConfig", {"num_nextn_predict_layers": own.max_draft_len})
    # 1.2 knows the folder of the draft model by this name; later releases take it as another name of theirs
    drafts["speculative_model_dir"] = own.speculative_model
    return Deferred("DraftTargetDecodingConfig" if own.speculation == "draft_target" else "EagleDecodingConfig", drafts)
