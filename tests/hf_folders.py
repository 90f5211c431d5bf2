"""The small files of a Hugging Face folder, for models whose tokenizer is that of a tiny engine."""

import json
import shutil
from pathlib import Path

from engines.folder import TOKENIZER_FILE
from tests.tiny_vocabulary import CHAT_TEMPLATE

CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "max_position_embeddings": 512,
    "eos_token_id": 2,
}
GENERATION: dict[str, object] = {"eos_token_id": [2, 0], "temperature": 0.7, "top_k": 20, "do_sample": True}
TOKENIZER_CONFIG: dict[str, object] = {
    "bos_token": "<|im_start|>",
    "eos_token": {"__type": "AddedToken", "content": "<|im_end|>", "special": True},
    "chat_template": CHAT_TEMPLATE,
}


def write_metadata(folder: Path, engine: Path, **config: object) -> Path:
    """Write configuration and tokenizer into `folder`; `config` goes over the usual config.json."""
    folder.mkdir(exist_ok=True)
    documents = {
        "config.json": CONFIG | config,
        "generation_config.json": GENERATION,
        "tokenizer_config.json": TOKENIZER_CONFIG,
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document), encoding="utf-8")
    shutil.copyfile(engine / TOKENIZER_FILE, folder / TOKENIZER_FILE)
    return folder


def write_ir_folder(folder: Path, engine: Path, **config: object) -> Path:
    """Write a folder as optimum-intel leaves it: the graph of an engine and the files of `write_metadata`."""
    write_metadata(folder, engine, **config)
    for name in ("openvino_model.xml", "openvino_model.bin"):
        shutil.copyfile(engine / name, folder / name)
    return folder
