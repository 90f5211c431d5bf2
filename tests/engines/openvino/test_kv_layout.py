"""A block of the KV cache holds as many tokens whatever its precision."""

from pathlib import Path

import pytest

from engines.config import EngineConfig, KVPrecision
from engines.openvino.runner import ModelRunner


@pytest.mark.parametrize("precision", ["auto", "u8"])
def test_a_block_holds_32_tokens(precision: KVPrecision, tiny_engine: Path) -> None:
    config = EngineConfig(kv_cache_gib=0.01, kv_cache_precision=precision)
    runner = ModelRunner(tiny_engine / "openvino_model.xml", config)
    assert runner.layout.block_size == 32
    runner.close()
