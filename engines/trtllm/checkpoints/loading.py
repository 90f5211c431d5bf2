"""From a checkpoint to a running `tensorrt_llm.LLM` and the driver over it.

Source of the arguments: `TorchLlmArgs`, tensorrt_llm/llmapi/llm_args.py, release 1.2.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from engines.config import EngineConfig
from engines.contract import ExecutorInfo
from engines.folder import EngineFolder
from engines.guides import GuideCompiler
from engines.trtllm.checkpoint import Checkpoint
from engines.trtllm.checkpoints.adapters import lora_arguments, lora_requests, read_adapters
from engines.trtllm.checkpoints.driver import CheckpointDriver
from engines.trtllm.checkpoints.sampling import SamplingTranslator
from engines.trtllm.checkpoints.settings import Deferred, llm_arguments
from engines.trtllm.edits import come_late
from engines.trtllm.errors import TensorRTLLMError
from engines.trtllm.parts import Parts
from engines.trtllm.runtime import import_part, import_tensorrt_llm
from engines.trtllm.support import Limits, Refusals, way_of

log = logging.getLogger(__name__)


def load_checkpoint(path: Path, folder: EngineFolder, config: EngineConfig) -> Parts:
    """Start TensorRT-LLM on a checkpoint; `folder` describes it. Raises TensorRTLLMError."""
    checkpoint = Checkpoint(path)
    limit = folder.description.max_sequence_length
    max_sequence_length = min(limit, config.max_sequence_length or limit)
    adapters = read_adapters(config.trtllm.adapters, checkpoint, config.trtllm.tensor_parallel_size)
    # both refuse before anything slow is done
    arguments = llm_arguments(checkpoint, config, max_sequence_length) | lora_arguments(adapters, config.trtllm)
    top = import_tensorrt_llm()
    llmapi = import_part("tensorrt_llm.llmapi")
    llm = _construct(top, arguments)
    description = folder.description
    end_token_id = description.end_token_ids[0]
    guides = GuideCompiler(folder.tokenizer_path, description.vocab_size, (end_token_id,))
    translator = SamplingTranslator(
        top.SamplingParams,
        llmapi.GuidedDecodingParams,
        way_of(config),
        end_token_id,
        description.vocab_size,
        guides,
        edits_are_late=come_late(config.trtllm),
    )
    info = ExecutorInfo(
        engine="trtllm",
        precision=checkpoint.quantisation
        or (checkpoint.dtype if config.trtllm.dtype == "auto" else config.trtllm.dtype),
        vocab_size=description.vocab_size,
        max_sequence_length=max_sequence_length,
        max_batch_size=config.max_batch_size,
        max_waiting=config.waiting_limit,
        block_size=config.trtllm.tokens_per_block,
        num_blocks=0,
        adapters=tuple(adapter.name for adapter in adapters),
    )
    limits = Limits(
        counts_prompt=not translator.leaves_prompt_out,
        max_prompt_tokens=None if config.trtllm.enable_chunked_prefill else config.max_num_tokens,
        late_edits=come_late(config.trtllm),
    )
    refusals = Refusals(config, way_of(config), limits)
    request_error = import_part("tensorrt_llm.executor.utils").RequestError
    driver = CheckpointDriver(llm, translator, request_error, description.vocab_size, lora_requests(adapters))
    return Parts(driver, info, refusals, guides)


def _construct(top: ModuleType, arguments: Mapping[str, Any]) -> Any:
    known = import_part("tensorrt_llm.llmapi.llm_args").TorchLlmArgs.model_fields
    unknown = sorted(name for name in arguments if name not in known)
    if unknown:
        raise TensorRTLLMError(f"TensorRT-LLM {top.__version__} has no setting {', '.join(unknown)}")
    made = {name: value.build() if isinstance(value, Deferred) else value for name, value in arguments.items()}
    log.info("TensorRT-LLM %s starts with %s", top.__version__, made)
    try:
        return top.LLM(**made)
    except (ValueError, RuntimeError, TypeError, AssertionError, OSError) as exc:
        raise TensorRTLLMError(f"TensorRT-LLM cannot serve {arguments['model']}: {exc}") from exc
