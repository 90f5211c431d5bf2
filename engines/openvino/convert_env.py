"""The environment that converts Hugging Face models: PyTorch, transformers and optimum-intel, apart from the server's.

Their versions exclude the server's own, and 1.6 GB of them serve nothing. All are pinned in a requirements file and
installed without looking at dependencies: optimum-intel asks for a torchvision it does not use for text models.
"""

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from engines.building import BuildError

REQUIREMENTS = Path(__file__).with_name("convert-requirements.txt")
_STAMP_FILE = "installed.sha256"  # the hash of the requirements, written once all of them are installed


@dataclass(frozen=True, slots=True)
class ConvertEnv:
    """A virtual environment in a folder of its own."""

    path: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.path / "bin" / "python"

    @property
    def is_ready(self) -> bool:
        """Whether everything of today's requirements file is installed."""
        stamp = self.path / _STAMP_FILE
        return stamp.is_file() and stamp.read_text() == _wanted()

    def install(self) -> None:
        """Make the environment, or bring it up to date. pip prints to the terminal. Raises BuildError."""
        stamp = self.path / _STAMP_FILE
        stamp.unlink(missing_ok=True)
        pip = [str(self.python), "-m", "pip", "install", "--no-deps", "--no-input", "--disable-pip-version-check"]
        for command in ([sys.executable, "-m", "venv", str(self.path)], [*pip, "--requirement", str(REQUIREMENTS)]):
            if subprocess.run(command, check=False).returncode:
                raise BuildError(f"the conversion environment {self.path} could not be made: see above")
        stamp.write_text(_wanted())


def _wanted() -> str:
    return hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()


def pinned_versions(*packages: str) -> dict[str, str]:
    """Return the versions of these packages in the environment."""
    lines = (line.partition("==") for line in REQUIREMENTS.read_text().splitlines())
    versions = {name: version for name, _, version in lines}
    return {package: versions[package] for package in packages}
