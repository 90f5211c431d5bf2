"""From a model's configuration to a model that is ready to be served."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import stylers
from engines import load_executor
from engines.folder import EngineFolder
from engines.progress import Progress
from llm_server.adoption import adopt
from llm_server.config import ConfigError, ModelConfig
from llm_server.families import styler_name
from llm_server.pull import pull
from llm_server.registry import HiddenTokens, ServedModel
from llm_server.tokenizer import Tokenizer
from stylers.base import Styler


def load_model(config: ModelConfig, home: Path, pool: ThreadPoolExecutor, progress: Progress) -> ServedModel:
    """Fetch a model unless it is there, and load it. Blocking: about a second once it is there.

    Raises ConfigError, PullError, EngineFolderError, EngineError, TokenizerError and StylerError.
    """
    folder = EngineFolder.load(engine_folder(config, home, progress))
    tokenizer = Tokenizer.load(folder.tokenizer_path, pool)
    styler = _styler(config, folder, tokenizer)
    marks = (tokenizer.token_id(stop) for stop in styler.stop)
    return ServedModel(
        name=config.served_model_name or folder.path.name,
        styler=styler,
        tokenizer=tokenizer,
        executor=load_executor(folder, config.executor),
        end_token_ids=frozenset((*folder.description.end_token_ids, *(mark for mark in marks if mark is not None))),
        hidden_tokens=HiddenTokens(_hidden(tokenizer, styler)),
        reasoning_field=config.reasoning_field,
        defaults=folder.generation_config(),
        created=int(time.time()),
    )


def engine_folder(config: ModelConfig, home: Path, progress: Progress) -> Path:
    """Fetch a model unless it is there, and return its engine folder. Raises ConfigError, PullError, EngineError."""
    if config.engine == "trtllm":
        return adopt(config.model, home, config.tokenizer, progress)
    return pull(config.model, home, progress)


def _hidden(tokenizer: Tokenizer, styler: Styler) -> dict[str, int]:
    """All special tokens but the tags of reasoning: where a parser leaves those in the text, they were asked for."""
    shown = styler.think or ()
    return {text: token_id for text, token_id in tokenizer.special_tokens.items() if text not in shown}


def _styler(config: ModelConfig, folder: EngineFolder, tokenizer: Tokenizer) -> Styler:
    description = folder.description
    template = folder.chat_template if config.chat_template is None else _read_template(config.chat_template)
    name = config.styler or styler_name(folder, template)
    return stylers.get(name).for_model(
        chat_template=template,
        bos_token=description.bos_text or "",
        eos_token=description.eos_text,
        control_tokens=tokenizer.control_tokens if config.control_tokens_as_text else (),
        prefer_builder=config.prefer_builder,
        generic_tools=config.generic_tools,
        split_reasoning=config.split_reasoning,
    )


def _read_template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"the chat template {path} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"the chat template {path} cannot be read: {exc}") from exc
