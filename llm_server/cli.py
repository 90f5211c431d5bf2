"""The command line: serve, pull, build, models, rm, convert-env.

Heavy modules are imported where a command needs them, so that `--help` and mistakes are answered at once.
"""

import sys
from collections.abc import Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from llm_server import __version__, paths

USAGE_EXIT_CODE = 2
UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # click's own, or the one of the click inside newer typers

SOURCE_HELP = "A model's name, a source, a GGUF file, or a model folder."
MODEL_HELP = f"{SOURCE_HELP} [the default model]"

cli = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
console = Console(highlight=False, soft_wrap=True)
errors = Console(stderr=True, highlight=False, soft_wrap=True)


class CommandError(Exception):
    """A mistake of the user or of the surroundings, told in one line."""


def main() -> None:
    """Run the command line; the console script's entry."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return the exit code."""
    try:
        result = cli(arguments or ("--help",), prog_name="llm-server", standalone_mode=False)
    except UsageError as exc:
        return _fail(exc.format_message())  # type: ignore[attr-defined]  # of click's exceptions
    except CommandError as exc:
        return _fail(str(exc))
    except (KeyboardInterrupt, typer.Abort):
        return 130
    return result if isinstance(result, int) else 0


def _fail(message: str) -> int:
    errors.print(f"llm-server: {' '.join(message.split())}", markup=False)
    return USAGE_EXIT_CODE


def _show_version(asked: bool) -> None:
    if asked:
        console.print(f"llm-server {__version__}")
        raise typer.Exit


@cli.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """An OpenAI-compatible LLM inference server."""


@cli.command()
def serve(
    model: Annotated[str | None, typer.Argument(help=MODEL_HELP)] = None,
    config: Annotated[
        Path | None, typer.Option(envvar="LLM_SERVER_CONFIG", help="A server.toml with the same options.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one. [8000]")] = None,
    served_model_name: Annotated[str | None, typer.Option(help="Name of the model for clients.")] = None,
    styler: Annotated[str | None, typer.Option(help="Model family, where detection errs.")] = None,
    chat_template: Annotated[Path | None, typer.Option(help="A Jinja file in place of the model's own.")] = None,
    generic_tools: Annotated[bool | None, typer.Option(help="Give tool calls to families that have none.")] = None,
    control_tokens_as_text: Annotated[
        bool | None, typer.Option(help="Read control tokens in requests as text.")
    ] = None,
    prefer_builder: Annotated[bool | None, typer.Option(help="Build prompts without the model's template.")] = None,
    split_reasoning: Annotated[bool | None, typer.Option(help="Keep reasoning apart from the content.")] = None,
    reasoning_field: Annotated[
        str | None, typer.Option(help="reasoning_content or reasoning. [reasoning_content]")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="openvino or trtllm. [openvino]")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder of the tokenizer, for a TensorRT engine that has none beside it.")
    ] = None,
    trtllm: Annotated[str | None, typer.Option(help="TensorRT-LLM's settings, a JSON object.")] = None,
    kv_cache_gib: Annotated[float | None, typer.Option(help="Memory for the KV cache, in GiB. [2]")] = None,
    kv_cache_fraction: Annotated[
        float | None, typer.Option(help="Or: its share of the free memory. [trtllm 0.9]")
    ] = None,
    max_batch_size: Annotated[
        int | None, typer.Option(help="Sequences that run at the same time. [32; trtllm 256]")
    ] = None,
    max_num_tokens: Annotated[int | None, typer.Option(help="Token budget of one step. [512; trtllm 8192]")] = None,
    max_waiting: Annotated[
        int | None, typer.Option(help="Sequences that may wait; more get a 429. [8 times those that run]")
    ] = None,
    max_sequence_length: Annotated[int | None, typer.Option(help="Lowers the model's context length.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, bf16 or f32. [auto]")] = None,
    kv_cache_precision: Annotated[str | None, typer.Option(help="auto or u8. [auto]")] = None,
    scheduler_policy: Annotated[
        str | None, typer.Option(help="guaranteed_no_evict or max_utilization. [guaranteed_no_evict]")
    ] = None,
    num_threads: Annotated[int | None, typer.Option(help="CPU threads of the model. [all cores]")] = None,
    max_body_mib: Annotated[int | None, typer.Option(help="Largest request body, in MiB. [32]")] = None,
    drain_timeout_s: Annotated[
        float | None, typer.Option(help="How long a stop waits for running answers. [30]")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error. [info]")] = None,
) -> None:
    """Serve a model, fetching it first if need be."""
    flags = {name: value for name, value in locals().items() if name != "config"}
    from llm_server.serve import ServeError, serve_forever  # here: it imports FastAPI

    try:
        serve_forever(flags, config, console, errors)
    except ServeError as exc:
        raise CommandError(str(exc)) from exc


@cli.command()
def pull(
    model: Annotated[str | None, typer.Argument(help=MODEL_HELP)] = None,
) -> None:
    """Fetch a model and prepare it, without serving it."""
    from llm_server.progress import shown_progress
    from llm_server.pull import PullError
    from llm_server.pull import pull as fetch
    from llm_server.sources.catalog import DEFAULT_MODEL

    try:
        with shown_progress(errors) as progress:
            folder = fetch(model or DEFAULT_MODEL, paths.home(), progress)
    except PullError as exc:
        raise CommandError(str(exc)) from exc
    console.print(f"ready: {folder}", markup=False)


@cli.command()
def build(
    source: Annotated[str, typer.Argument(help=SOURCE_HELP)],
    engine: Annotated[str | None, typer.Option(help="openvino or trtllm. [openvino]")] = None,
    precision: Annotated[str | None, typer.Option(help="openvino: of the weights; f16, int8 or int4. [f16]")] = None,
    tp: Annotated[int | None, typer.Option(help="trtllm: GPUs that share each layer. [1]")] = None,
    pp: Annotated[int | None, typer.Option(help="trtllm: groups of GPUs that share the layers. [1]")] = None,
    dtype: Annotated[str | None, typer.Option(help="trtllm: auto, float16 or bfloat16. [auto]")] = None,
    quantization: Annotated[
        str | None,
        typer.Option(help="trtllm: int8_wo, int4_wo, int4_awq, w4a8_awq, int8_sq, fp8 or nvfp4. [none]"),
    ] = None,
    kv_cache_dtype: Annotated[str | None, typer.Option(help="trtllm: auto, int8 or fp8. [auto]")] = None,
    max_batch_size: Annotated[int | None, typer.Option(help="trtllm: sequences at the same time. [256]")] = None,
    max_seq_len: Annotated[
        int | None, typer.Option(help="trtllm: prompt and answer together, in tokens. [the model's]")
    ] = None,
    max_num_tokens: Annotated[int | None, typer.Option(help="trtllm: token budget of one step. [8192]")] = None,
    max_multimodal_len: Annotated[
        int | None, typer.Option(help="trtllm: image rows of a whole batch. [one image per sequence]")
    ] = None,
    speculative: Annotated[
        str | None, typer.Option(help="trtllm: guess ahead; lookahead:WINDOW,NGRAM,VERIFICATION.")
    ] = None,
    gather_logits: Annotated[bool, typer.Option("--gather-logits", help="trtllm: serve logprobs.")] = False,
    lora_dir: Annotated[list[str] | None, typer.Option(help="trtllm: take adapters like this one.")] = None,
    lora_target_modules: Annotated[
        list[str] | None, typer.Option(help="trtllm: or take adapters of this module, such as attn_qkv.")
    ] = None,
    lora_max_rank: Annotated[int | None, typer.Option(help="trtllm: of adapters. [64]")] = None,
    calibration_dataset: Annotated[
        str | None, typer.Option(help="trtllm: read to calibrate; a folder or a dataset on the hub.")
    ] = None,
    examples: Annotated[
        Path | None,
        typer.Option(help="trtllm: its examples folder. [TRTLLM_EXAMPLES, else /app/tensorrt_llm/examples]"),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="trtllm: ranks built at the same time. [1]")] = None,
    gpu_memory_gib: Annotated[
        float | None, typer.Option(help="trtllm: memory of each GPU. [what nvidia-smi says]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Engine folder to write; by default one in the cache.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
) -> None:
    """Make an engine folder, unless the one there is up to date."""
    flags = {name: value for name, value in locals().items() if name not in ("source", "out", "dry_run")}
    from llm_server.build import plan_build
    from llm_server.progress import shown_progress
    from llm_server.pull import PullError, carry_out
    from llm_server.reports import describe_loss, describe_plan

    try:
        plan = plan_build(source, paths.home(), flags, out)
        if dry_run:
            console.print(describe_plan(plan), markup=False)
            return
        with shown_progress(errors) as progress:
            folder = carry_out(plan, progress, partial(errors.print, markup=False))
    except PullError as exc:
        raise CommandError(str(exc)) from exc
    console.print(f"ready: {folder}{describe_loss(folder)}", markup=False)


@cli.command()
def models() -> None:
    """List the models known by name and those that are here."""
    from llm_server.inventory import TITLES, list_models

    rows = [TITLES, *map(astuple, list_models(paths.home()))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        console.print("  ".join(cells).rstrip(), markup=False)


@cli.command()
def rm(name: Annotated[str, typer.Argument(help="The name of a model, as `llm-server models` lists it.")]) -> None:
    """Remove the engine folder of a model. Files it was built from stay."""
    from llm_server.pull import PullError, remove

    try:
        freed_bytes = remove(name, paths.home())
    except PullError as exc:
        raise CommandError(str(exc)) from exc
    console.print(f"removed {name}: {freed_bytes / 1e6:.1f} MB", markup=False)


@cli.command()
def convert_env() -> None:
    """Make the environment that converts Hugging Face models. It holds PyTorch and optimum-intel, 1.6 GB."""
    from engines.building import BuildError
    from engines.openvino.convert_env import ConvertEnv

    environment = ConvertEnv(paths.convert_env(paths.home()))
    try:
        if not environment.is_ready:
            environment.install()
    except BuildError as exc:
        raise CommandError(str(exc)) from exc
    console.print(f"ready: {environment.path}", markup=False)
