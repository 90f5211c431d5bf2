"""Runs in the conversion environment: `python hf_export.py MODEL_FOLDER TARGET` writes IRs in float32.

A script of its own, which imports nothing of ours. The model folder is only read: no code in it is run, weights come
from safetensors, and nothing is fetched.
"""

import json
import sys
from pathlib import Path

sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # openvino tells of its use unless this is missing

from optimum.exporters.openvino import main_export  # noqa: E402
from optimum.exporters.openvino.utils import MULTI_MODAL_TEXT_GENERATION_MODELS  # noqa: E402
from optimum.intel import OVConfig  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

TOKENIZER_FILE = "tokenizer.json"


def export(folder: Path, target: Path) -> None:
    """Write openvino_model.xml, or several graphs of a model that reads images.

    Also tokenizer.json where the folder has only a SentencePiece model.
    """
    main_export(
        str(folder),
        target,
        task=_task(folder),
        library_name="transformers",
        trust_remote_code=False,
        local_files_only=True,
        stateful=True,
        convert_tokenizer=False,
        ov_config=OVConfig(dtype="fp32"),
        model_loading_kwargs={"use_safetensors": True},
    )
    if not (target / TOKENIZER_FILE).is_file():
        AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True).save_pretrained(target)


def _task(folder: Path) -> str:
    model_type = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    return "image-text-to-text" if model_type in MULTI_MODAL_TEXT_GENERATION_MODELS else "text-generation-with-past"


if __name__ == "__main__":
    try:
        export(Path(sys.argv[1]), Path(sys.argv[2]))
    except Exception as exc:  # told to the parent process in one line, whatever it is
        sys.exit(f"{type(exc).__name__}: {' '.join(str(exc).split())}")
