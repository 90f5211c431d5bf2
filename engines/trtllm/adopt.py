"""Models that are served where they lie: a Hugging Face checkpoint, or an engine that was built elsewhere.

The folder that is written holds what this server reads itself, tokenizer, chat template and sampling defaults, and says
where the model is. Nothing of the model is copied.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from engines.building import BuildError
from engines.folder import TOKENIZER_FILE, EngineDescription, EngineFolder, ModelFacts, describe_folder
from engines.hf_metadata import HuggingFaceMetadata, read_tokenizer
from engines.model_facts import write_texts
from engines.trtllm.checkpoint import Checkpoint
from engines.trtllm.errors import TensorRTLLMError
from engines.trtllm.location import ModelKind, ModelLocation
from engines.trtllm.prebuilt.engine import PrebuiltEngine, is_prebuilt_engine

BUILDERS: Mapping[ModelKind, str] = {
    ModelKind.CHECKPOINT: "trtllm-checkpoint-3",
    ModelKind.ENGINE: "trtllm-prebuilt-1",
}
_WEIGHTS: Mapping[ModelKind, str] = {ModelKind.CHECKPOINT: "*.safetensors", ModelKind.ENGINE: "rank*.engine"}


@dataclass(frozen=True, slots=True)
class Adoption:
    """A model to be served where it lies, and the folder that its tokenizer is taken from.

    `source` is where the model came from, as engine.json keeps it.
    """

    kind: ModelKind
    path: Path
    tokenizer: Path
    source: str

    @classmethod
    def of(cls, path: Path, tokenizer: Path | None = None, source: str | None = None) -> "Adoption":
        """Look at the folder of a model. Raises TensorRTLLMError where it is neither a checkpoint nor an engine."""
        path = path.resolve()
        kind = ModelKind.ENGINE if is_prebuilt_engine(path) else ModelKind.CHECKPOINT
        if kind is ModelKind.CHECKPOINT:
            Checkpoint(path)  # refuses what is none
        return cls(kind, path, (tokenizer or path).resolve(), source or f"folder:{path}")

    def is_up_to_date(self, known: EngineDescription) -> bool:
        """Whether a folder with this description would come out the same today."""
        made = (BUILDERS[self.kind], self.source, self.fingerprint())
        return (known.builder, known.source, known.source_sha256) == made

    def fingerprint(self) -> str:
        """Hash the small files, where the model is, and the names and sizes of its weights."""
        digest = hashlib.sha256(f"{self.kind} {self.path} {self.tokenizer}\n".encode())
        for folder in dict.fromkeys((self.path, self.tokenizer)):
            for file in sorted((*folder.glob("*.json"), *folder.glob("*.jinja"))):
                digest.update(file.read_bytes())
        for file in sorted(self.path.glob(_WEIGHTS[self.kind])):
            digest.update(f"{file.name} {file.stat().st_size}\n".encode())
        return digest.hexdigest()

    def write(self, target: Path, versions: Mapping[str, str]) -> EngineFolder:
        """Describe the model in the empty folder `target`. Raises TensorRTLLMError for one that cannot be served."""
        try:
            facts = self._facts(target)
        except BuildError as exc:
            raise TensorRTLLMError(str(exc)) from exc
        ModelLocation(self.kind, self.path).write(target)
        facts = replace(facts, versions=versions)
        description = EngineDescription(
            **facts.by_name(),
            engine="trtllm",
            source=self.source,
            source_sha256=self.fingerprint(),
            builder=BUILDERS[self.kind],
        )
        return describe_folder(target, description)

    def _facts(self, target: Path) -> ModelFacts:
        if self.kind is ModelKind.ENGINE:
            return engine_facts(PrebuiltEngine.read(self.path), self.tokenizer.name, self.tokenizer, target)
        return checkpoint_facts(Checkpoint(self.path), self.tokenizer, target)


def adopt_checkpoint(path: Path, target: Path, versions: Mapping[str, str] | None = None) -> EngineFolder:
    """Describe a checkpoint in the empty folder `target`. Raises TensorRTLLMError for one that cannot be served."""
    checkpoint = Checkpoint(path.resolve())
    return Adoption(ModelKind.CHECKPOINT, checkpoint.path, checkpoint.path, f"folder:{checkpoint.path}").write(
        target, versions or {}
    )


def checkpoint_facts(checkpoint: Checkpoint, tokenizer: Path, target: Path) -> ModelFacts:
    """Write the texts of a checkpoint into `target` and return what it says of itself. Raises BuildError."""
    facts = _write_and_collect(
        tokenizer,
        target,
        name=checkpoint.path.name,
        precision=checkpoint.quantisation or checkpoint.dtype,
        vocab_size=checkpoint.vocab_size,
        max_sequence_length=checkpoint.max_sequence_length,
    )
    return replace(facts, architecture=checkpoint.architecture)


def engine_facts(engine: PrebuiltEngine, name: str, tokenizer: Path, target: Path) -> ModelFacts:
    """Write the texts of an engine's model into `target` and return what is known of it. Raises BuildError."""
    facts = _write_and_collect(
        tokenizer,
        target,
        name=name,
        precision=engine.quantisation or engine.dtype,
        vocab_size=engine.vocab_size,
        max_sequence_length=engine.max_sequence_length,
    )
    return replace(facts, architecture=engine.architecture)


def _write_and_collect(
    folder: Path, target: Path, *, name: str, precision: str, vocab_size: int, max_sequence_length: int
) -> ModelFacts:
    refuse_missing_tokenizer(folder)
    metadata = HuggingFaceMetadata.read(folder)
    tokenizer = read_tokenizer(folder / TOKENIZER_FILE)
    write_texts(target, tokenizer, metadata.chat_template(), metadata.sampling_defaults())
    return metadata.facts(
        tokenizer,
        name=name,
        precision=precision,
        vocab_size=vocab_size,
        max_sequence_length=max_sequence_length,
        versions={},
    )


def refuse_missing_tokenizer(folder: Path) -> None:
    """Raise BuildError for a folder without a tokenizer.json, saying where one comes from."""
    if (folder / TOKENIZER_FILE).is_file():
        return
    if is_prebuilt_engine(folder):
        fix = "name the folder of its Hugging Face model with --tokenizer"
    else:
        fix = "write one with transformers: AutoTokenizer.from_pretrained(...).save_pretrained(...)"
    raise BuildError(f"{folder} has no {TOKENIZER_FILE}; {fix}")
