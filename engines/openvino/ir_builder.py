"""OpenVINO IR folder to engine folder: graphs are taken as they are, if the executor can run them."""

import shutil
from importlib.metadata import version
from pathlib import Path

from engines.building import BuildError, BuildRequest, refuse_full_disk
from engines.folder import TOKENIZER_FILE, ModelFacts
from engines.hf_metadata import HuggingFaceMetadata, read_tokenizer
from engines.model_facts import write_texts
from engines.model_files import ModelFiles, decoder_irs, weights_name
from engines.openvino.graph import check_servable, keep_kv_exact, read_graph, save_graph, weights_precision
from engines.openvino.processor_files import keep_processor_files
from engines.progress import Phase, Progress


def import_ir(request: BuildRequest, target: Path, progress: Progress) -> ModelFacts:
    """Copy the graphs and write tokenizer, template and sampling defaults into `target`. Raises BuildError.

    They are copied, not linked: a folder that someone else may write to is never served. The one thing changed is what
    the decoder may say, or leave to the runtime, about the KV cache: that is a setting of the executor.
    """
    folder = request.model.path
    graphs = _graph_files(request.model)
    metadata = HuggingFaceMetadata.read(folder)
    metadata.refuse_unfollowed()
    tokenizer = read_tokenizer(folder / TOKENIZER_FILE)
    refuse_full_disk(target, sum(file.stat().st_size for file in graphs))
    progress(Phase.CONVERT, 0, 1)
    decoder = folder / decoder_irs({file.name for file in graphs})[0]
    vocab_size = check_servable(decoder)
    metadata.refuse_more_tokens_than(vocab_size, tokenizer)
    graph = read_graph(decoder)
    precision = weights_precision(graph)
    keep_kv_exact(graph)
    save_graph(graph, target / decoder.name)
    for file in graphs:
        if file.stem != decoder.stem:
            shutil.copyfile(file, target / file.name)
    keep_processor_files(folder, target)
    progress(Phase.CONVERT, 1, 1)
    write_texts(target, tokenizer, metadata.chat_template(), metadata.sampling_defaults())
    versions = {package: version(package) for package in ("openvino", "tokenizers")}
    return metadata.facts(
        tokenizer,
        name=request.name,
        precision=precision,
        vocab_size=vocab_size,
        max_sequence_length=metadata.context_length(),
        versions=versions,
    )


def _graph_files(model: ModelFiles) -> list[Path]:
    """List the graphs and the weights of each. Raises BuildError for a file that is missing."""
    names = {file.name for file in model.files}
    irs = sorted({name for name in names if name.endswith(".xml")} | set(decoder_irs(names)))
    files = [model.path / name for ir in irs for name in (ir, weights_name(ir))]
    for file in files:
        if not file.is_file():
            raise BuildError(f"there is no file {file}")
    return files
