"""Load and speed: what is claimed of the server is measured here, both sides in one run."""

import sys
from types import ModuleType
from typing import cast

# openvino's Python package tells an analytics service of every import; without this module it does not.
sys.modules.setdefault("openvino_telemetry", cast(ModuleType, None))
