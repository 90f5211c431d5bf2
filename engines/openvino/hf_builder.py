"""Hugging Face folder to OpenVINO IR, by optimum-intel in the conversion environment.

It exports in float32, which holds every checkpoint exactly; the matrices are then stored in float16 here, so that norms
and rope frequencies are not rounded with them. Of a model that reads images it writes several graphs.
"""

import tempfile
from importlib.metadata import version
from pathlib import Path

from engines.building import BuildError, BuildRequest, refuse_full_disk
from engines.folder import TOKENIZER_FILE, ModelFacts
from engines.hf_metadata import HuggingFaceMetadata, read_tokenizer
from engines.model_facts import write_texts
from engines.model_files import ModelFiles, decoder_irs
from engines.openvino.conversion import EXACT_PRECISION, run_child
from engines.openvino.convert_env import ConvertEnv, pinned_versions
from engines.openvino.graph import check_servable, compress_matrices
from engines.openvino.processor_files import keep_processor_files
from engines.progress import Phase, Progress

_EXPORT = Path(__file__).with_name("hf_export.py")
_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}  # no network, and no packages of the server


def import_hugging_face(request: BuildRequest, target: Path, progress: Progress) -> ModelFacts:
    """Write the graphs, tokenizer, template and sampling defaults of a folder into `target`. Raises BuildError."""
    metadata = HuggingFaceMetadata.read(request.model.path)
    metadata.refuse_unfollowed()
    environment = _ready_environment(request)
    # float32 weights of a float16 checkpoint and their float16 copy; less for one that is float32 itself
    refuse_full_disk(target, 3 * _weights_bytes(request.model))
    with tempfile.TemporaryDirectory(prefix=".convert-", dir=target) as scratch:
        exported = Path(scratch)
        progress(Phase.CONVERT, 0, 2)
        irs = _export(environment, request.model.path, exported)
        progress(Phase.CONVERT, 1, 2)
        for ir in irs:
            compress_matrices(ir, target / ir.name)
        own, made = request.model.path / TOKENIZER_FILE, exported / TOKENIZER_FILE
        tokenizer = read_tokenizer(own if own.is_file() else made)
    keep_processor_files(request.model.path, target)
    vocab_size = check_servable(target / decoder_irs({ir.name for ir in irs})[0])
    metadata.refuse_more_tokens_than(vocab_size, tokenizer)
    progress(Phase.CONVERT, 2, 2)
    write_texts(target, tokenizer, metadata.chat_template(), metadata.sampling_defaults())
    versions = {package: version(package) for package in ("openvino", "tokenizers")}
    return metadata.facts(
        tokenizer,
        name=request.name,
        precision=EXACT_PRECISION,
        vocab_size=vocab_size,
        max_sequence_length=metadata.context_length(),
        versions=versions | pinned_versions("optimum-intel", "transformers", "torch"),
    )


def _ready_environment(request: BuildRequest) -> ConvertEnv:
    if request.convert_env is None or not (environment := ConvertEnv(request.convert_env)).is_ready:
        raise BuildError(
            f"{request.model.path} is a Hugging Face model; its conversion needs PyTorch and optimum-intel in an "
            "environment of their own (1.6 GB). Make it once with: llm-server convert-env"
        )
    return environment


def _weights_bytes(model: ModelFiles) -> int:
    return sum(file.stat().st_size for file in model.files if file.suffix == ".safetensors")


def _export(environment: ConvertEnv, folder: Path, exported: Path) -> list[Path]:
    """Run optimum-intel and return the graphs it wrote."""
    arguments = [str(_EXPORT), str(folder), str(exported)]
    failure = run_child(arguments, python=environment.python, environment=_ENVIRONMENT)
    irs = sorted(exported.glob("openvino_*.xml"))
    if failure is None and not irs:
        failure = "it wrote no graph"
    if failure:
        raise BuildError(f"optimum-intel could not convert {folder}: {failure}")
    return irs
