"""How much memory a KV cache may take.

The kernel counts a page only once it is written, so caches of other models in this process are mostly still "free":
what they were promised is taken off. In a container the limit of its control group counts, too.
"""

from pathlib import Path
from weakref import WeakKeyDictionary

import psutil

from engines.config import EngineConfig
from engines.errors import MemoryShortageError

CGROUP = Path("/sys/fs/cgroup")
GIB = 2**30

_promised: WeakKeyDictionary[object, int] = WeakKeyDictionary()


def promise(owner: object, num_bytes: int) -> None:
    """Note what a cache will take once it is full, for as long as its owner lives."""
    _promised[owner] = num_bytes


def give_back(owner: object) -> None:
    """Forget a cache before that. Does nothing for one that is unknown."""
    _promised.pop(owner, None)


def cache_bytes(config: EngineConfig, cgroup: Path = CGROUP) -> int:
    """Return how large the KV cache of a model that is loaded now may be, in bytes.

    Raises MemoryShortageError, with what would fit, where there is not so much.
    """
    available = max(available_bytes(cgroup) - sum(_promised.values()), 0)
    if config.kv_cache_fraction is not None:
        return int(available * config.kv_cache_fraction)
    wanted = int(config.kv_cache_gib * GIB)
    if wanted > available:
        raise MemoryShortageError(
            f"a KV cache of {config.kv_cache_gib:g} GiB does not fit: {available / GIB:.1f} GiB are free beside the "
            f"models and their caches; kv_cache_gib {int(available / GIB * 9) / 10:g} would fit"
        )
    return wanted


def available_bytes(cgroup: Path = CGROUP) -> int:
    """Return what this process may still take: of the machine, or of its control group if that allows less."""
    machine: int = psutil.virtual_memory().available
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
    except OSError:
        return machine  # no control group of the second kind
    return machine if limit == "max" else min(machine, max(int(limit) - used, 0))
