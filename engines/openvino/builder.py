"""A model of any format to an OpenVINO engine folder: import it exactly, lower the precision if asked, describe it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from engines.building import BuildRequest
from engines.folder import EngineFolder, ModelFacts, describe_folder
from engines.model_files import ModelFormat
from engines.openvino.conversion import EXACT_PRECISION
from engines.openvino.gguf_builder import import_gguf
from engines.openvino.hf_builder import import_hugging_face
from engines.openvino.ir_builder import import_ir
from engines.openvino.quantise import quantise, refuse_without_nncf
from engines.progress import Phase, Progress, silent

# each writes the exact IR, the tokenizer, the template and the sampling defaults into a folder
_IMPORTERS: Mapping[ModelFormat, Callable[[BuildRequest, Path, Progress], ModelFacts]] = {
    ModelFormat.GGUF: import_gguf,
    ModelFormat.OPENVINO_IR: import_ir,
    ModelFormat.HUGGING_FACE: import_hugging_face,
}


def build_engine(request: BuildRequest, target: Path, builder: str, progress: Progress = silent) -> EngineFolder:
    """Build the engine folder of a model inside the empty folder `target`. Raises BuildError."""
    lowers_precision, loss = request.precision != EXACT_PRECISION, None
    if lowers_precision:
        refuse_without_nncf(request.precision)  # before minutes of work
    facts = _IMPORTERS[request.model.format](request, target, progress)
    if lowers_precision:
        facts, loss = quantise(target, facts, request.precision, progress)
    progress(Phase.WRITE, 0, 1)
    description = request.describe(facts, engine="openvino", builder=builder)
    folder = describe_folder(target, replace(description, precision_loss=loss))
    progress(Phase.WRITE, 1, 1)
    return folder
