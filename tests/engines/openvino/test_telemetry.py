"""Nothing is told to anybody: openvino's usage reports are off, here and in the processes that convert models."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engines.openvino.conversion import NO_TELEMETRY

SCRIPTS = {
    "engine": "import engines.openvino.runner",
    "benchmark": "import benchmarks.bare_loop",
    "child": f"{NO_TELEMETRY}\nimport openvino_genai",
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_no_trace_of_telemetry_is_left(tmp_path: Path, script: str) -> None:
    check = "import sys; assert not any(name.startswith('openvino_telemetry.') for name in sys.modules)"
    environment = {**os.environ, "HOME": str(tmp_path), "CI": ""}
    subprocess.run([sys.executable, "-c", f"{script}\n{check}"], env=environment, check=True)
    assert list(tmp_path.iterdir()) == []
