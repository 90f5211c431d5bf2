"""The KV block pool: who holds which block, and which content can be hit again.

Every block is in exactly one of three states, so used + free + cached = total at any time:

- used: at least one sequence has it in its block table (`ref_count > 0`);
- cached: nobody uses it, but its content is known and may be hit; the least recently used one is taken first;
- free: neither.

Content is addressed by a chained 128-bit hash: a block's key covers its own tokens, everything before them, the cache
salt and any extra bytes (an image's hash, say). A hit is believed only if the stored tokens and the stored parent are
equal too, so a hash collision costs a miss and never a wrong answer.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

ROOT_UID = 0
"""Parent of every first block."""


@dataclass(frozen=True, slots=True)
class BlockKey:
    """Address of a full block: 16 bytes over the whole prefix, and the block's own content to check a hit against."""

    digest: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class Match:
    """The cached blocks of a prompt's beginning, in order, and the uid of the last one."""

    blocks: list[int]
    uid: int


@dataclass(slots=True)
class _Entry:
    block: int
    uid: int
    parent_uid: int
    content: bytes


def hash_block(parent: bytes, content: bytes) -> bytes:
    """Return the 16-byte digest of a block whose prefix has digest `parent`."""
    return blake2b(content, digest_size=16, key=parent).digest()


def block_keys(
    token_ids: Sequence[int],
    block_size: int,
    *,
    salt: str | None = None,
    extra: bytes = b"",
    hasher: Callable[[bytes, bytes], bytes] = hash_block,
) -> list[BlockKey]:
    """Return the keys of all full blocks of `token_ids`; `salt` and `extra` separate otherwise equal prefixes."""
    seed = (salt or "").encode()
    digest = hasher(b"", len(seed).to_bytes(4, "little") + seed + extra)
    raw, step = array("i", token_ids).tobytes(), 4 * block_size
    keys = []
    for start in range(0, len(raw) - step + 1, step):
        content = raw[start : start + step]
        digest = hasher(digest, content)
        keys.append(BlockKey(digest, content))
    return keys


class BlockPool:
    """Reference-counted KV blocks with prefix reuse and LRU eviction. Only the scheduler calls it."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._ref_counts = [0] * num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # ref_count 0, least recently used first
        self._by_digest: dict[bytes, _Entry] = {}
        self._digest_of: dict[int, bytes] = {}
        self._next_uid = ROOT_UID + 1

    @property
    def num_free(self) -> int:
        """Blocks without content."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Blocks that nobody uses but that can be hit."""
        return len(self._cached)

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` can give."""
        return len(self._free) + len(self._cached)

    @property
    def num_used(self) -> int:
        """Blocks in some sequence's block table."""
        return self.num_blocks - self.num_available

    def is_idle(self, block: int) -> bool:
        """Whether nobody uses the block."""
        return self._ref_counts[block] == 0

    def match(self, keys: Sequence[BlockKey]) -> Match:
        """Find the longest cached beginning of `keys`. Nothing is acquired."""
        blocks: list[int] = []
        uid = ROOT_UID
        for key in keys:
            entry = self._by_digest.get(key.digest)
            if entry is None or entry.content != key.content or entry.parent_uid != uid:
                break
            blocks.append(entry.block)
            uid = entry.uid
        return Match(blocks, uid)

    def acquire(self, blocks: Sequence[int]) -> None:
        """Take a reference to each of these known blocks."""
        for block in blocks:
            if self._ref_counts[block] == 0:
                del self._cached[block]
            self._ref_counts[block] += 1

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks without content, evicting cached ones if need be. At most `num_available`."""
        assert count <= self.num_available
        blocks = [self._free.pop() if self._free else self._evict() for _ in range(count)]
        for block in blocks:
            self._ref_counts[block] = 1
        return blocks

    def publish(self, block: int, key: BlockKey, parent_uid: int) -> int:
        """Make a fully computed block available to others; return the uid that its successor names as parent.

        If the same content is there already, this block stays private and the other one's uid is returned.
        """
        entry = self._by_digest.get(key.digest)
        if entry is not None and entry.content == key.content and entry.parent_uid == parent_uid:
            return entry.uid
        uid, self._next_uid = self._next_uid, self._next_uid + 1
        if entry is None:
            self._by_digest[key.digest] = _Entry(block, uid, parent_uid, key.content)
            self._digest_of[block] = key.digest
        return uid

    def release(self, blocks: Sequence[int]) -> None:
        """Give references back. The last block goes first: a prefix stays longer than what follows it."""
        for block in reversed(blocks):
            assert self._ref_counts[block] > 0
            self._ref_counts[block] -= 1
            if self._ref_counts[block] == 0:
                if block in self._digest_of:
                    self._cached[block] = None
                else:
                    self._free.append(block)

    def _evict(self) -> int:
        block, _ = self._cached.popitem(last=False)
        del self._by_digest[self._digest_of.pop(block)]
        return block
