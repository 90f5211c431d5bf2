"""From an engine folder to a running TensorRT-LLM. The only place that imports tensorrt_llm.

Source of the arguments: `TorchLlmArgs`, tensorrt_llm/llmapi/llm_args.py, release 1.2.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from engines.config import EngineConfig
from engines.contract import ExecutorInfo
from engines.folder import EngineFolder
from engines.guides import GuideCompiler
from engines.trtllm.checkpoint import Checkpoint
from engines.trtllm.checkpoint_driver import CheckpointDriver
from engines.trtllm.errors import TensorRTLLMError
from engines.trtllm.location import ModelLocation
from engines.trtllm.sampling import SamplingTranslator
from engines.trtllm.settings import llm_arguments
from engines.trtllm.support import Refusals, way_of

log = logging.getLogger(__name__)

REQUIRED = "tensorrt-llm>=1.2,<1.3"
_IS_1_2 = re.compile(r"1\.2(\.\d+)*(\.post\d+)?(\+.*)?")  # candidates of 1.2.0 come before it


@dataclass(frozen=True, slots=True)
class Runtime:
    """The installed package: its modules, by what is used of each."""

    top: ModuleType
    llmapi: ModuleType
    arguments: ModuleType
    """tensorrt_llm.llmapi.llm_args"""
    errors: ModuleType
    """tensorrt_llm.executor.utils"""


def import_runtime() -> Runtime:
    """Import TensorRT-LLM, which takes seconds and needs its GPU libraries. Raises TensorRTLLMError."""
    try:
        top = import_module("tensorrt_llm")
    except ImportError as exc:
        raise TensorRTLLMError(f"TensorRT-LLM cannot be imported ({exc}); install {REQUIRED} on a GPU machine") from exc
    version = str(top.__version__)
    if not _IS_1_2.fullmatch(version):
        raise TensorRTLLMError(f"TensorRT-LLM {version} is installed; this server needs {REQUIRED}")
    names = ("llmapi", "llmapi.llm_args", "executor.utils")
    return Runtime(top, *(import_module(f"tensorrt_llm.{name}") for name in names))


def load_parts(
    folder: EngineFolder, config: EngineConfig
) -> tuple[CheckpointDriver, ExecutorInfo, Refusals, GuideCompiler]:
    """Start TensorRT-LLM for a folder and return what an executor is made of. Raises TensorRTLLMError."""
    checkpoint = Checkpoint(ModelLocation.read(folder.path).path)
    limit = folder.description.max_sequence_length
    max_sequence_length = min(limit, config.max_sequence_length or limit)
    arguments = llm_arguments(checkpoint, config, max_sequence_length)  # refuses before anything slow is done
    runtime = import_runtime()
    llm = _construct(runtime, arguments)
    description = folder.description
    end_token_id = description.end_token_ids[0]
    guides = GuideCompiler(folder.tokenizer_path, description.vocab_size, (end_token_id,))
    translator = SamplingTranslator(
        runtime.top.SamplingParams,
        runtime.llmapi.GuidedDecodingParams,
        way_of(config),
        end_token_id,
        description.vocab_size,
        guides,
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
    )
    refusals = Refusals(config, counts_prompt=not translator.leaves_prompt_out)
    driver = CheckpointDriver(llm, translator, runtime.errors.RequestError, description.vocab_size)
    return driver, info, refusals, guides


def _construct(runtime: Runtime, arguments: Mapping[str, Any]) -> Any:
    known = runtime.arguments.TorchLlmArgs.model_fields
    unknown = sorted(name for name in arguments if name not in known)
    if unknown:
        raise TensorRTLLMError(f"TensorRT-LLM {runtime.top.__version__} has no setting {', '.join(unknown)}")
    made = {
        name: value.build(runtime.llmapi) if hasattr(value, "build") else value for name, value in arguments.items()
    }
    log.info("TensorRT-LLM %s starts with %s", runtime.top.__version__, made)
    try:
        return runtime.top.LLM(**made)
    except (ValueError, RuntimeError, TypeError, AssertionError, OSError) as exc:
        raise TensorRTLLMError(f"TensorRT-LLM cannot serve {arguments['model']}: {exc}") from exc
