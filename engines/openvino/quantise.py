"""Weights in 8 or 4 bits by NNCF, and what that changed: nobody should quantise blindly.

Graphs for images stay as they are: they are a small part of a model, and the measured text says nothing of them.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from engines.building import BuildError, refuse_full_disk
from engines.folder import TOKENIZER_FILE, ModelFacts, PrecisionLoss
from engines.hf_metadata import read_tokenizer
from engines.model_files import decoder_irs, weights_name
from engines.openvino.conversion import NO_TELEMETRY, run_child
from engines.openvino.precision_loss import measure_loss
from engines.progress import Phase, Progress

# groups of 32: on a 135M model 69 % instead of 67 % of the likeliest tokens stay the same, for 5 % more bytes.
# The embedding and the LM head stay in 8 bits when the rest goes to 4.
_OPTIONS: Mapping[str, str] = {
    "int8": "mode=nncf.CompressWeightsMode.INT8_ASYM",
    "int4": "mode=nncf.CompressWeightsMode.INT4_ASYM, group_size=32, ratio=1.0",
}
_SCRIPT = f"""{NO_TELEMETRY}
import nncf, openvino as ov
graph = nncf.compress_weights(ov.Core().read_model(sys.argv[1]), {{options}})
ov.save_model(graph, sys.argv[2], compress_to_fp16=False)
"""


def refuse_without_nncf(precision: str) -> None:
    """Raise BuildError unless NNCF is installed."""
    if find_spec("nncf") is None:
        raise BuildError(f"{precision} weights need NNCF: pip install -e '.[quantize]'")


def quantise(folder: Path, facts: ModelFacts, precision: str, progress: Progress) -> tuple[ModelFacts, PrecisionLoss]:
    """Lower the weights of the decoder in `folder` to this precision and measure what it lost. Raises BuildError."""
    if facts.precision in _OPTIONS:
        raise BuildError(f"the weights of {facts.model_name} are {facts.precision} already; name an exact model")
    with tempfile.TemporaryDirectory(prefix=".exact-", dir=folder) as scratch:
        exact = Path(scratch)
        irs = decoder_irs([file.name for file in folder.iterdir()])
        refuse_full_disk(folder, sum((folder / weights_name(ir)).stat().st_size for ir in irs))
        for done, ir in enumerate(irs):
            progress(Phase.QUANTISE, done, len(irs) + 1)
            _lower(folder / ir, exact / ir, precision)
        progress(Phase.QUANTISE, len(irs), len(irs) + 1)
        loss = measure_loss(exact / irs[0], folder / irs[0], read_tokenizer(folder / TOKENIZER_FILE))
        progress(Phase.QUANTISE, len(irs) + 1, len(irs) + 1)
    return replace(facts, precision=precision, versions={**facts.versions, "nncf": version("nncf")}), loss


def _lower(ir: Path, exact: Path, precision: str) -> None:
    """Move a graph with its weights to `exact` and write its copy of lower precision in its place."""
    for name in (ir.name, weights_name(ir.name)):
        ir.with_name(name).replace(exact.with_name(name))
    failure = run_child(["-c", _SCRIPT.format(options=_OPTIONS[precision]), str(exact), str(ir)])
    if failure:
        raise BuildError(f"NNCF could not make the weights {precision}: {failure}")
