from pathlib import Path

import pytest

from engines.config import EngineConfig
from engines.errors import MemoryShortageError
from engines.openvino import memory

GIB = 2**30


class Owner:
    """Something that holds a cache."""


@pytest.fixture
def container(tmp_path: Path) -> Path:
    """A control group that allows 3 GiB, of which one is used."""
    (tmp_path / "memory.max").write_text(f"{3 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{GIB}\n")
    return tmp_path


def test_a_containers_limit_counts(container: Path) -> None:
    assert memory.available_bytes(container) == 2 * GIB
    assert memory.cache_bytes(EngineConfig(kv_cache_gib=1.5), container) == 1.5 * GIB
    assert memory.cache_bytes(EngineConfig(kv_cache_fraction=0.25), container) == 0.5 * GIB


def test_without_a_limit_the_machine_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("123\n")
    assert memory.available_bytes(tmp_path) > 0
    assert memory.available_bytes(tmp_path / "nothing here") > 0


def test_what_other_models_caches_were_promised_is_not_given_twice(container: Path) -> None:
    first, second = Owner(), Owner()
    memory.promise(first, GIB)
    with pytest.raises(MemoryShortageError, match=r"1\.5 GiB does not fit: 1\.0 GiB are free.*kv_cache_gib 0\.9"):
        memory.cache_bytes(EngineConfig(kv_cache_gib=1.5), container)
    memory.give_back(first)
    memory.give_back(second)
    assert memory.cache_bytes(EngineConfig(kv_cache_gib=1.5), container) == 1.5 * GIB
    memory.promise(second, GIB)
    del second
    assert memory.cache_bytes(EngineConfig(kv_cache_gib=1.5), container) == 1.5 * GIB
