"""TensorRT-LLM's own tools: where they are, and how they are run, each in a process that does not outlive this one."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

from engines.building import BuildError
from engines.trtllm.building.plan import Command

BUILD_TOOL = "trtllm-build"
_TAIL_LINES = 8
_GRACE_S = 10.0
_PR_SET_PDEATHSIG = 1


def find_build_tool() -> str | None:
    """Look for trtllm-build beside this Python, then on PATH."""
    beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    return shutil.which(BUILD_TOOL, path=beside)


def refuse_missing(script: Path) -> None:
    """Raise BuildError where a script or trtllm-build is missing, saying where they come from."""
    if not script.is_file():
        raise BuildError(
            f"there is no {script}; name the examples folder of TensorRT-LLM 1.2 with --examples or TRTLLM_EXAMPLES "
            "(in NVIDIA's release container it is /app/tensorrt_llm/examples)"
        )
    if find_build_tool() is None:
        raise BuildError(f"{BUILD_TOOL} is not on PATH; it comes with TensorRT-LLM 1.2: pip install -e '.[trtllm]'")


def run_tool(command: Command, show: Callable[[str], None]) -> None:
    """Run a tool to its end, giving each line it prints to `show`. Raises BuildError with its last lines."""
    last: deque[str] = deque(maxlen=_TAIL_LINES)
    with subprocess.Popen(
        (command.program, *command.arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # its helpers are in its group, and are stopped with it
        preexec_fn=_die_with_parent,
    ) as tool:
        assert tool.stdout is not None
        try:
            for line in tool.stdout:
                if text := line.strip():
                    last.append(text)
                    show(text)
            returncode = tool.wait()
        except BaseException:  # Ctrl-C above all
            _stop(tool)
            raise
    if returncode:
        how = f"ended by {signal.Signals(-returncode).name}" if returncode < 0 else f"exit status {returncode}"
        raise BuildError(f"{_name(command)} failed ({how}): {' | '.join(last) or 'no message'}")


def _name(command: Command) -> str:
    """The script where Python runs one, with its folder: every family's has the same name."""
    first = command.arguments[0]
    return "/".join(Path(first).parts[-2:]) if first.endswith(".py") else Path(command.program).name


def _stop(tool: "subprocess.Popen[str]") -> None:
    """End a tool and its helpers: asked first, then killed."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(tool.pid, sign)
            tool.wait(_GRACE_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _die_with_parent() -> None:
    """Runs in the child: the kernel kills it when the server is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
