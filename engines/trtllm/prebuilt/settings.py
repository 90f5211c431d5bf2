"""Our settings in the words of the C++ executor, and all that a prebuilt engine decides itself.

Source of names and defaults: nanobind/executor/executorConfig.cpp, release 1.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from engines.config import EngineConfig, TensorRTLLMConfig
from engines.trtllm.checkpoint import ModelShape
from engines.trtllm.cpu_settings import refuse_cpu_settings
from engines.trtllm.errors import TensorRTLLMError
from engines.trtllm.prebuilt.engine import PrebuiltEngine, SpeculativeMode
from engines.trtllm.ranks import Launch
from engines.trtllm.support import Limits

CHECKPOINT_ONLY = (
    "gpus_per_node",
    "dtype",
    "load_format",
    "trust_remote_code",
    "sampler",
    "kv_cache_dtype",
    "tokens_per_block",
    "cuda_graphs",
    "disable_overlap_scheduler",
    "stream_interval",
    "speculation",
    "speculative_model",
    "adapters",
    "max_loras",
    "max_cpu_loras",
    "max_draft_len",
)
"""Settings that an engine was built with, or that its runtime does not have."""
GIB = 2**30
_PARALLEL_SIZES = ("tensor_parallel_size", "pipeline_parallel_size")
_KV_DTYPES: Mapping[str | None, str] = {None: "auto", "FP8": "fp8", "INT8": "int8"}


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the executor of an engine is made with. Raises TensorRTLLMError for settings that do not fit the engine."""

    engine: PrebuiltEngine
    config: EngineConfig
    launch: Launch

    def __post_init__(self) -> None:
        refuse_cpu_settings(self.config)
        _refuse_checkpoint_settings(self.config.trtllm)
        _refuse_sizes(self.engine, self.config.trtllm)
        _refuse_speculation(self.engine, self.config.trtllm)
        _refuse_cache(self.engine, self.config)
        self._refuse_launch()

    @property
    def max_batch_size(self) -> int:
        """Sequences at a time: the engine's limit, or a lower one."""
        return min(self.config.max_batch_size, self.engine.max_batch_size)

    @property
    def max_num_tokens(self) -> int:
        """Tokens per step: the engine's limit, or a lower one."""
        return min(self.config.max_num_tokens, self.engine.max_num_tokens)

    @property
    def max_sequence_length(self) -> int:
        """Prompt and answer; guesses beyond the end of the answer take room, too."""
        limit = self.engine.max_sequence_length - self.engine.max_draft_len
        return min(limit, self.config.max_sequence_length or limit)

    @property
    def is_orchestrator(self) -> bool:
        """Whether TensorRT-LLM spawns a process per GPU, because nobody else did."""
        return self.engine.world_size > 1 and self.launch.num_ranks == 1

    def limits(self, *, counts_prompt: bool) -> Limits:
        """Tell what single requests are refused for."""
        engine = self.engine
        max_image_tokens = engine.max_prompt_embedding_table_size // self.max_batch_size
        build = "the engine was built without {}; build it anew with {}"
        return Limits(
            counts_prompt=counts_prompt,
            max_prompt_tokens=None if self.config.trtllm.enable_chunked_prefill else self.max_num_tokens,
            no_prompt_logits=None
            if engine.gather_context_logits
            else build.format("the logits of prompts", "--gather_context_logits"),
            no_edits=self._no_edits(),
            no_images=None
            if max_image_tokens
            else build.format("room for images", "--max_multimodal_len (image tokens of a request x max_batch_size)"),
            max_image_tokens=max_image_tokens,
            no_mrope=None if engine.use_mrope else build.format("mrope", "a checkpoint whose model has it"),
        )

    def executor_config(self, api: ModuleType, package: Path) -> Any:
        """Make the ExecutorConfig; `api` is tensorrt_llm.bindings.executor, `package` the folder of tensorrt_llm."""
        own = self.config.trtllm
        policy = getattr(api.CapacitySchedulerPolicy, self.config.scheduler_policy.upper())
        processors = api.LogitsPostProcessorConfig(
            replicate=False
        )  # with the default a callable needs to be everywhere
        return api.ExecutorConfig(
            max_beam_width=1,
            scheduler_config=api.SchedulerConfig(capacity_scheduler_policy=policy),
            kv_cache_config=api.KvCacheConfig(**self._kv_cache()),
            enable_chunked_context=own.enable_chunked_prefill,
            max_batch_size=self.max_batch_size,
            max_num_tokens=self.max_num_tokens,
            parallel_config=self._parallel(api, package),
            logits_post_processor_config=processors if self.engine.tensor_parallel_size > 1 else None,
            decoding_config=self._decoding(api),
            gather_generation_logits=own.gather_generation_logits,
        )

    def _no_edits(self) -> str | None:
        if self.is_orchestrator:
            return "logits are edited in the serving process only; start it with mpirun, one process per GPU"
        if self.engine.pipeline_parallel_size > 1:
            return "logits are edited in the serving process only; build the engine without pipeline parallelism"
        return None

    def _kv_cache(self) -> dict[str, Any]:
        own = self.config.trtllm
        arguments: dict[str, Any] = {
            "enable_block_reuse": own.enable_block_reuse,
            "enable_partial_reuse": False,  # blocks that are reused are whole then, and tell how many tokens they saved
        }
        if self.config.kv_cache_fraction is not None:
            arguments["free_gpu_memory_fraction"] = self.config.kv_cache_fraction
        else:
            arguments["max_tokens"] = int(self.config.kv_cache_gib * GIB) // _kv_bytes_per_token(self.engine)
        if own.host_cache_gib:
            arguments["host_cache_size"] = int(own.host_cache_gib * GIB)
        if own.max_attention_window:
            arguments["max_attention_window"] = list(own.max_attention_window)
        return arguments

    def _parallel(self, api: ModuleType, package: Path) -> Any:
        if not self.is_orchestrator:
            return api.ParallelConfig(communication_mode=api.CommunicationMode.LEADER)
        executable = worker_executable(package)
        if not executable.is_file():
            raise TensorRTLLMError(
                f"TensorRT-LLM lacks {executable}; start the server with mpirun, one process per GPU"
            )
        return api.ParallelConfig(
            communication_mode=api.CommunicationMode.ORCHESTRATOR,
            orchestrator_config=api.OrchestratorConfig(is_orchestrator=True, worker_executable_path=str(executable)),
        )

    def _decoding(self, api: ModuleType) -> Any:
        lookahead = self.config.trtllm.lookahead
        if lookahead is None:
            return None
        return api.DecodingConfig(
            decoding_mode=api.DecodingMode.Lookahead(),
            lookahead_decoding_config=api.LookaheadDecodingConfig(*lookahead),
        )

    def _refuse_launch(self) -> None:
        engine, launch = self.engine, self.launch
        if launch.by_llmapi:
            raise TensorRTLLMError(
                "trtllm-llmapi-launch is for checkpoints; start an engine with mpirun or srun, one process per GPU"
            )
        if launch.num_ranks not in (1, engine.world_size):
            raise TensorRTLLMError(
                f"{launch.num_ranks} processes were started, but {engine.path.name} was built for "
                f"{engine.world_size} GPUs: start as many"
            )


def worker_executable(package: Path) -> Path:
    """Where the package keeps the program of a process that it spawns."""
    return package / "bin" / "executorWorker"


def _refuse_checkpoint_settings(own: TensorRTLLMConfig) -> None:
    defaults = TensorRTLLMConfig()
    for name in CHECKPOINT_ONLY:
        if getattr(own, name) != getattr(defaults, name):
            raise TensorRTLLMError(f"{name} is a setting for checkpoints; an engine was built with its own")


def _refuse_sizes(engine: PrebuiltEngine, own: TensorRTLLMConfig) -> None:
    for name in _PARALLEL_SIZES:
        wanted, built = getattr(own, name), getattr(engine, name)
        if wanted not in (1, built):
            raise TensorRTLLMError(
                f"{name} = {wanted}, but {engine.path.name} was built for {built}: leave it out, or build another"
            )


def _refuse_speculation(engine: PrebuiltEngine, own: TensorRTLLMConfig) -> None:
    name, mode, num = engine.path.name, engine.speculative_mode, own.num_lookahead_tokens
    if mode not in (SpeculativeMode.NONE, SpeculativeMode.LOOKAHEAD_DECODING):
        raise TensorRTLLMError(f"{name} was built for {mode}, which this server does not run; build it without")
    if mode is SpeculativeMode.LOOKAHEAD_DECODING and own.lookahead is None:
        raise TensorRTLLMError(f"{name} was built for lookahead decoding: set lookahead, such as [4, 3, 4]")
    flags = f"build it with --speculative_decoding_mode lookahead_decoding --max_draft_len {num}"
    if mode is SpeculativeMode.NONE and own.lookahead is not None:
        raise TensorRTLLMError(f"{name} was built without lookahead decoding; leave lookahead out, or {flags}")
    if num > engine.max_draft_len:
        raise TensorRTLLMError(
            f"lookahead = {list(own.lookahead or ())} guesses {num} tokens, but {name} was built for "
            f"{engine.max_draft_len}; {flags}"
        )


def _refuse_cache(engine: PrebuiltEngine, config: EngineConfig) -> None:
    own = config.trtllm
    if not engine.paged_kv_cache:
        raise TensorRTLLMError(f"{engine.path.name} was built without a paged KV cache; use --kv_cache_type paged")
    for name in ("enable_block_reuse", "enable_chunked_prefill"):
        if getattr(own, name) and not engine.use_paged_context_fmha:
            raise TensorRTLLMError(
                f"{engine.path.name} was built without paged context attention: set {name} = false, or build it with "
                "--use_paged_context_fmha enable"
            )
    if config.scheduler_policy == "max_utilization" and not own.enable_chunked_prefill:
        raise TensorRTLLMError("scheduler_policy max_utilization streams only with enable_chunked_prefill = true")


def _kv_bytes_per_token(engine: PrebuiltEngine) -> int:
    kv_dtype = _KV_DTYPES.get(engine.kv_quantisation)
    if kv_dtype is None:
        raise TensorRTLLMError(
            f"the size of a KV cache in {engine.kv_quantisation} is not known here: set kv_cache_fraction instead of "
            "kv_cache_gib"
        )
    shape = ModelShape(
        num_layers=engine.num_layers,
        hidden_size=engine.hidden_size,
        num_heads=engine.num_heads,
        num_kv_heads=engine.num_kv_heads,
        head_size=engine.head_size,
        vocab_size=engine.vocab_size,
        dtype=engine.dtype,
    )
    return shape.kv_bytes_per_token(kv_dtype, engine.tensor_parallel_size, engine.pipeline_parallel_size)
