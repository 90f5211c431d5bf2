"""How importers run what may crash: in a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

EXACT_PRECISION: Final = "f16"
NO_TELEMETRY = "import sys; sys.modules['openvino_telemetry'] = None"
"""First line of a child's script: openvino and nncf tell an analytics service of their use unless this is missing."""


def run_child(
    arguments: Sequence[str], *, python: Path = Path(sys.executable), environment: Mapping[str, str] | None = None
) -> str | None:
    """Run Python in a process of its own and return None, or in one line why it failed.

    `-P`: no module is imported from the current folder, which may be that of the model.
    """
    command = [str(python), "-P", *arguments]
    child = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, **(environment or {})},
    )
    if child.returncode < 0:
        return f"it was ended by {signal.Signals(-child.returncode).name}"
    if child.returncode:
        return (child.stderr.strip().splitlines() or ["no message"])[-1]
    return None
