"""A server in a process of its own: prints its port, pauses its answers, resumes them at a line of input."""

import asyncio
import sys
import threading

from llm_server.app import create_app
from llm_server.config import ServerConfig
from llm_server.lifecycle import Lifecycle
from llm_server.registry import ModelRegistry
from llm_server.server import Server, bind
from tests.doubles import ScriptedExecutor, says
from tests.llm_server.serving import served


def main() -> None:
    config = ServerConfig(port=0, drain_timeout_s=float(sys.argv[1]))
    executor = ScriptedExecutor(says("before and after"), pause_after=6)
    listener, registry, lifecycle = bind(config), ModelRegistry([served(executor)]), Lifecycle()

    def resume_at_input(loop: asyncio.AbstractEventLoop) -> None:
        if sys.stdin.readline():
            loop.call_soon_threadsafe(executor.resume)

    def announce() -> None:
        threading.Thread(target=resume_at_input, args=(asyncio.get_running_loop(),), daemon=True).start()
        print(listener.getsockname()[1], flush=True)

    Server(create_app(config, registry, lifecycle), config, lifecycle, registry, announce).run(sockets=[listener])


if __name__ == "__main__":
    main()
