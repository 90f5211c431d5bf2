"""Settings: flags, before environment variables, before the file, before defaults; checked once, at the start.

An option has one name everywhere: `max_batch_size` in server.toml, `--max-batch-size` as a flag,
`LLM_SERVER_MAX_BATCH_SIZE` in the environment. In the file, `[model.NAME]` tables serve several models and may
repeat the options of a model or its engine with values of their own. `trtllm` is a table of its own, as a flag or
variable a JSON object.
"""

import re
import tomllib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError

from engines.config import EngineConfig, TensorRTLLMConfig
from llm_server.sources.catalog import DEFAULT_MODEL

ENVIRONMENT_PREFIX = "LLM_SERVER_"
Options: TypeAlias = Mapping[str, object]
Config = TypeVar("Config", "ServerConfig", "ModelConfig", EngineConfig)


class ConfigError(Exception):
    """A setting that stops the start; the message names it, where it stands, and what is allowed."""


class EnvironmentText(str):
    """The value of an environment variable: messages about it name the variable."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The HTTP side of the server."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0 takes any free port."""
    max_body_mib: int = 32
    """A larger request body is refused with 413."""
    drain_timeout_s: float = 30.0
    """After a signal to stop, how long running answers may take to finish."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def __post_init__(self) -> None:
        _check(0 <= self.port <= 65535, "port must be between 0 and 65535")
        _check(self.max_body_mib >= 1, "max_body_mib must be at least 1")
        _check(self.drain_timeout_s >= 0, "drain_timeout_s must be at least 0")

    @property
    def max_body_bytes(self) -> int:
        """The limit of a body in bytes."""
        return self.max_body_mib * 2**20


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model: where it comes from and how it is served."""

    model: str = DEFAULT_MODEL
    """A name of the catalogue, a source such as `gguf:/models/x.gguf`, or the path of a GGUF file."""
    served_model_name: str | None = None
    """The name that clients use; by default the model's own."""
    styler: str | None = None
    """The model family; by default it is detected."""
    chat_template: Path | None = None
    """A Jinja file in place of the model's own chat template."""
    generic_tools: bool = False
    """Whether a family without tool calls of its own gets the generic ones (docs/stylers.md)."""
    control_tokens_as_text: bool = True
    """Whether control tokens such as `<|im_end|>` are text where they stand in a request's own texts."""
    prefer_builder: bool = False
    """Whether the prompt is built by the family's own code although the model has a chat template."""
    split_reasoning: bool = True
    """Whether reasoning goes out apart from the content; off, it stays in it, tags and all."""
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    """The name of the field that reasoning goes out in."""
    engine: Literal["openvino", "trtllm"] = "openvino"
    """What runs the model: OpenVINO on a CPU, TensorRT-LLM on NVIDIA GPUs."""
    tokenizer: Path | None = None
    """Folder of the tokenizer, for a TensorRT engine that was built elsewhere and has none beside it."""
    executor: EngineConfig = field(default_factory=EngineConfig)

    def __post_init__(self) -> None:
        _check(self.tokenizer is None or self.engine == "trtllm", "tokenizer is a setting of the engine trtllm")
        table, name = self.executor.trtllm, self.served_model_name
        _check(table == TensorRTLLMConfig() or self.engine == "trtllm", "the table trtllm belongs to the engine trtllm")
        _check(name not in table.adapters, f"{name!r} is a model, and an adapter too")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the server is started with."""

    server: ServerConfig
    models: tuple[ModelConfig, ...]


def option_names(config: type[Config]) -> list[str]:
    """The options of one layer."""
    return [option.name for option in fields(config) if option.name != "executor"]


MODEL_OPTIONS = frozenset((*option_names(ModelConfig), *option_names(EngineConfig)))
ALL_OPTIONS = frozenset((*option_names(ServerConfig), *MODEL_OPTIONS))


def load_settings(flags: Options, environ: Mapping[str, str], file: Path | None) -> Settings:
    """Merge the layers and check the result. Raises ConfigError."""
    document = _read_file(file)
    tables = document.pop("model") if isinstance(document.get("model"), Mapping) else {}
    assert isinstance(tables, Mapping)
    _refuse_unknown(document, ALL_OPTIONS, str(file))
    over_file = _from_environment(environ) | {name: value for name, value in flags.items() if value is not None}
    common = {**document, **over_file}
    return Settings(_build(ServerConfig, common), tuple(_models(tables, common, over_file)))


def _models(tables: Options, common: Options, over_file: Options) -> Iterable[ModelConfig]:
    """One model per table; without tables, or where a flag or variable names another model, that one alone."""
    chosen = over_file.get("model")
    if chosen is not None and chosen not in tables:
        tables = {}
    if not tables:
        yield _model(common)
    for name, table in tables.items():
        if chosen in (None, name):
            yield _model({**common, "model": name, "served_model_name": name, **_table(name, table)})


def _model(options: Options) -> ModelConfig:
    executor = _build(EngineConfig, {**_engine_defaults(options), **options})
    own = {name: value for name, value in options.items() if name in option_names(ModelConfig)}
    return _build(ModelConfig, {**own, "executor": executor})


def _engine_defaults(options: Options) -> Options:
    """What suits a GPU better than the defaults, which suit a CPU."""
    if options.get("engine") != "trtllm":
        return {}
    sizes = {"max_batch_size": 256, "max_num_tokens": 8192}
    return sizes if "kv_cache_gib" in options else {**sizes, "kv_cache_fraction": 0.9}


def _table(name: str, table: object) -> Options:
    place = f"[model.{name}]"
    if not isinstance(table, Mapping):
        raise ConfigError(f"{place} must be a table")
    _refuse_unknown(table, MODEL_OPTIONS, place)
    return table


def _read_file(file: Path | None) -> dict[str, object]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"{file} cannot be read: {exc.strerror}") from exc
    except ValueError as exc:  # not TOML, or not UTF-8
        raise ConfigError(f"{file} is not valid TOML: {exc}") from exc


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in ALL_OPTIONS:
        value = environ.get(_variable(name))
        # Kubernetes sets LLM_SERVER_PORT=tcp://... in every pod beside a service named llm-server.
        if value is not None and not (name == "port" and value.startswith("tcp://")):
            found[name] = EnvironmentText(value)
    return found


def _refuse_unknown(options: Options, known: frozenset[str], place: str) -> None:
    for name in options:
        if name not in known:
            raise ConfigError(f"{place} has an unknown option {name!r}; known are {', '.join(sorted(known))}")


def _build(config: type[Config], options: Options) -> Config:
    """Make one layer out of those options that belong to it; texts from the environment become numbers here."""
    hints = typing.get_type_hints(config)
    own: dict[str, Any] = {name: _convert(name, options[name], hints[name]) for name in hints if name in options}
    try:
        return config(**own)
    except (ValueError, ConfigError) as exc:
        raise ConfigError(f"{exc}{_origin(str(exc), options)}") from exc


def _origin(message: str, options: Options) -> str:
    """Say which environment variables set the options that a message names."""
    named = (name for name, value in options.items() if isinstance(value, EnvironmentText))
    variables = [_variable(name) for name in named if re.search(rf"\b{name}\b", message)]
    return f" (set by {', '.join(variables)})" if variables else ""


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper()


def _convert(name: str, value: object, hint: Any) -> Any:
    place = _variable(name) if isinstance(value, EnvironmentText) else name
    _refuse_boolean(place, value, hint)
    try:
        if is_dataclass(hint) and isinstance(value, str):  # a table, from a flag or the environment
            return TypeAdapter(hint).validate_json(value)
        return TypeAdapter(hint).validate_python(str(value) if isinstance(value, EnvironmentText) else value)
    except ValidationError as exc:
        message = exc.errors(include_url=False)[0]["msg"]
        raise ConfigError(f"{place} = {value!r} is not allowed: {message}") from exc


def _refuse_boolean(place: str, value: object, hint: Any) -> None:
    """Refuse true where a number is wanted; pydantic would count it as 1."""
    if isinstance(value, Mapping) and is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        for name in value.keys() & hints.keys():
            _refuse_boolean(f"{place}.{name}", value[name], hints[name])
    elif isinstance(value, bool) and bool not in (hint, *typing.get_args(hint)):
        raise ConfigError(f"{place} = {str(value).lower()} is not allowed: it is not an option that is on or off")


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ConfigError(message)
