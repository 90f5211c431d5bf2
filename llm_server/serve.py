"""`llm-server serve`: settings, port, models, server; in this order, so that what fails fast fails first."""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from rich.console import Console

from engines.errors import EngineError
from engines.folder import EngineFolder, EngineFolderError
from llm_server import __version__, paths
from llm_server import log as logs
from llm_server.app import create_app
from llm_server.config import ConfigError, ModelConfig, load_settings
from llm_server.lifecycle import Lifecycle
from llm_server.loading import engine_folder, load_model
from llm_server.progress import shown_progress
from llm_server.pull import PullError
from llm_server.registry import ModelRegistry, ServedModel
from llm_server.server import Server, bind
from llm_server.tokenizer import TokenizerError
from stylers.errors import StylerError

POOL_THREADS = 2
ANY_ADDRESS = frozenset(("0.0.0.0", "::"))


class ServeError(Exception):
    """Why the server cannot start, in one line."""


def serve_forever(flags: Mapping[str, object], file: Path | None, out: Console, progress: Console) -> None:
    """Serve until a signal has been obeyed. Raises ServeError before anything is served."""
    try:
        settings = load_settings(flags, os.environ, file)
        if _worked_for_another_rank(settings.models, progress):
            return
        with bind(settings.server) as listener, ThreadPoolExecutor(POOL_THREADS, "llm-server-pool") as pool:
            logs.configure(settings.server.log_level)
            models = _load_models(settings.models, pool, progress)
            lifecycle, registry = Lifecycle(), ModelRegistry(models)
            app = create_app(settings.server, registry, lifecycle)
            announce = partial(_announce, models, listener, out)
            server = Server(app, settings.server, lifecycle, registry, announce)
            server.run(sockets=[listener])
        if server.engine_died:
            raise ServeError("an engine died; its log has the reason")
    except (ConfigError, PullError, EngineFolderError, EngineError, TokenizerError, StylerError) as exc:
        raise ServeError(str(exc)) from exc


def _worked_for_another_rank(models: Sequence[ModelConfig], console: Console) -> bool:
    """Be a worker until the server is over, if this is one of several MPI processes and not the one that serves."""
    ranked = [model for model in models if model.engine == "trtllm"]
    if not ranked:
        return False
    from engines.trtllm.loading import work  # here: others have no MPI
    from engines.trtllm.ranks import Launch

    launch = Launch.of(os.environ)
    if launch.num_ranks > 1 and len(ranked) > 1:
        raise ServeError("the processes that MPI started serve one model of the engine trtllm")
    if not launch.is_worker:
        return False
    with shown_progress(console) as shown:
        folder = EngineFolder.load(engine_folder(ranked[0], paths.home(), shown))
    work(folder, ranked[0].executor)
    return True


def _load_models(configs: Sequence[ModelConfig], pool: ThreadPoolExecutor, console: Console) -> list[ServedModel]:
    with shown_progress(console) as progress:
        models = [
            model for config in configs for model in load_model(config, paths.home(), pool, progress).with_adapters()
        ]
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        raise ConfigError(f"two models have the same name: {', '.join(sorted(names))}")
    return models


def _announce(models: Sequence[ServedModel], listener: socket.socket, out: Console) -> None:
    out.print(_summary(models, listener), markup=False)


def _summary(models: Sequence[ServedModel], listener: socket.socket) -> str:
    """What a person wants to see once the server answers."""
    url = _url(listener)
    question = json.dumps({"model": models[0].name, "messages": [{"role": "user", "content": "Hello!"}]})
    lines = [f"llm-server {__version__}"]
    for model in models:
        if model.base is not None:
            lines.append(f"  adapter    {model.name} of {model.base}")
            continue
        info = model.executor.info
        lines += [
            f"  model      {model.name} ({model.styler.name}, context {model.context_length} tokens)",
            f"  engine     {info.engine}, {info.precision}, up to {info.max_batch_size} sequences at a time",
            f"  KV cache   {info.num_blocks * info.block_size} tokens in {info.num_blocks} blocks",
        ]
    lines += [
        f"  address    {url}/v1",
        f"  try        curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{question}'",
    ]
    return "\n".join(lines)


def _url(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    shown = "localhost" if host in ANY_ADDRESS else host
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
