"""OpenVINO IR folder to engine folder: the graph is taken as it is, once it is known that the executor can run it."""

from importlib.metadata import version
from pathlib import Path

from engines.building import BuildError, BuildRequest, refuse_full_disk
from engines.folder import TOKENIZER_FILE
from engines.hf_metadata import HuggingFaceMetadata, read_tokenizer
from engines.model_facts import ModelFacts, write_texts
from engines.model_files import IR_FILE, WEIGHTS_FILE
from engines.openvino.graph import check_servable, keep_kv_exact, read_graph, save_graph, weights_precision
from engines.progress import Phase, Progress


def import_ir(request: BuildRequest, target: Path, progress: Progress) -> ModelFacts:
    """Copy the IR and write tokenizer, template and sampling defaults into `target`. Raises BuildError.

    It is copied, not linked: a folder that someone else may write to is never served. The one thing changed is what it
    may say, or leave to the runtime, about the KV cache: that is a setting of the executor.
    """
    folder = request.model.path
    weights = folder / WEIGHTS_FILE
    if not weights.is_file():
        raise BuildError(f"there is no file {weights}")
    metadata = HuggingFaceMetadata.read(folder)
    metadata.refuse_unfollowed()
    tokenizer = read_tokenizer(folder / TOKENIZER_FILE)
    refuse_full_disk(target, weights.stat().st_size)
    progress(Phase.CONVERT, 0, 1)
    vocab_size = check_servable(folder / IR_FILE)
    metadata.refuse_more_tokens_than(vocab_size, tokenizer)
    graph = read_graph(folder / IR_FILE)
    precision = weights_precision(graph)
    keep_kv_exact(graph)
    save_graph(graph, target / IR_FILE)
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
