"""The CPU executor: in-flight batching over OpenVINO's paged attention."""

import sys
from types import ModuleType
from typing import cast

# openvino's Python package tells an analytics service of every import; without this module it does not.
sys.modules.setdefault("openvino_telemetry", cast(ModuleType, None))
