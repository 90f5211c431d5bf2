"""`llm-server build`: from its options to a plan. Each option belongs to one engine, and is refused with the other."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from engines.build_options import BuildMachine, EngineOptions
from llm_server import paths
from llm_server.pull import ENGINE, EXACT, TENSORRT, Plan, PullError, make_plan, make_tensorrt_plan

Options = TypeVar("Options", EngineOptions, BuildMachine)
FLAGS: Mapping[str, str] = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "max_seq_len": "max_sequence_length",
    "speculative": "lookahead",
}
"""Options that are called otherwise on the command line, where they have the names of the vendor's tools."""
_LORA = ("lora_dir", "lora_target_modules", "lora_max_rank")


def plan_build(source: str, home: Path, flags: Mapping[str, object], out: Path | None) -> Plan:
    """Make the plan of a build out of the options that were given. Raises PullError naming a wrong one."""
    given = {name: value for name, value in flags.items() if value is not None and value is not False and value != []}
    engine = given.pop("engine", ENGINE)
    if engine == ENGINE:
        _refuse(given, allowed=("precision",), engine=ENGINE)
        return make_plan(source, home, precision=str(given.get("precision", EXACT)), out=out)
    if engine != TENSORRT:
        raise PullError(f"engine {engine!r} is not one of {ENGINE}, {TENSORRT}")
    _refuse(given, allowed=tuple(name for name in flags if name != "precision"), engine=TENSORRT)
    return make_tensorrt_plan(source, home, _options(given), _machine(given), out=out)


def _refuse(given: Mapping[str, object], *, allowed: tuple[str, ...], engine: str) -> None:
    for name in given:
        if name not in allowed:
            raise PullError(f"{_flag(name)} is not an option of the engine {engine}")


def _options(given: Mapping[str, object]) -> EngineOptions:
    document: dict[str, Any] = {FLAGS.get(name, name): value for name, value in given.items()}
    if "lookahead" in document:
        document["lookahead"] = _lookahead(str(document["lookahead"]))
    names = {"lora_dir": "folders", "lora_target_modules": "target_modules", "lora_max_rank": "max_rank"}
    document["lora"] = {names[name]: document[name] for name in _LORA if name in document}
    return _checked(EngineOptions, document)


def _machine(given: Mapping[str, object]) -> BuildMachine:
    examples = paths.trtllm_examples()
    return _checked(BuildMachine, given if examples is None else {"examples": examples, **given})


def _lookahead(text: str) -> dict[str, str]:
    kind, _, sizes = text.partition(":")
    numbers = sizes.split(",")
    if kind != "lookahead" or len(numbers) != 3:
        raise PullError(f"--speculative {text} is not like lookahead:4,3,4 (window, n-gram, verification set)")
    return dict(zip(("window", "ngram", "verification"), numbers, strict=True))


def _checked(kind: type[Options], document: Mapping[str, object]) -> Options:
    known = {field.name for field in fields(kind)}
    try:
        return TypeAdapter(kind).validate_python({name: document[name] for name in document if name in known})
    except ValidationError as exc:
        error = exc.errors(include_url=False)[0]
        shown = {name: flag for flag, name in FLAGS.items()}
        message = error["msg"].removeprefix("Value error, ")
        name, _, rest = message.partition(" ")  # what the options themselves refuse begins with the name of one
        if name in known.union(_LORA):
            raise PullError(f"{_flag(shown.get(name, name))} {rest}") from exc
        place = str(error["loc"][0])
        raise PullError(f"{_flag(shown.get(place, place))}: {message}") from exc


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
