"""The block pool against its invariants, driven by random operations."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from engines.openvino.blocks import ROOT_UID, BlockKey, BlockPool, block_keys, hash_block

BLOCK_SIZE = 4
Holding = list[int]


def keys_of(tokens: list[int], salt: str | None = None, extra: bytes = b"") -> list[BlockKey]:
    return block_keys(tokens, BLOCK_SIZE, salt=salt, extra=extra)


def collide(parent: bytes, content: bytes) -> bytes:
    """The worst hash there is."""
    return b"\0" * 16


def store(pool: BlockPool, keys: list[BlockKey]) -> list[int]:
    """Compute and publish blocks as a sequence that found nothing in the cache does."""
    blocks = pool.allocate(len(keys))
    uid = ROOT_UID
    for block, key in zip(blocks, keys, strict=True):
        uid = pool.publish(block, key, uid)
    return blocks


def test_only_full_blocks_have_keys() -> None:
    assert [len(keys_of(list(range(n)))) for n in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]


def test_a_key_covers_everything_before_it_and_salt_and_extra() -> None:
    tokens = list(range(8))
    digests = {
        keys_of(tokens)[1].digest,
        keys_of([9, *tokens[1:]])[1].digest,
        keys_of(tokens, salt="a")[1].digest,
        keys_of(tokens, salt="b")[1].digest,
        keys_of(tokens, extra=b"image")[1].digest,
        keys_of(tokens, salt="a", extra=b"b")[1].digest,
        keys_of(tokens, salt="ab")[1].digest,
    }
    assert len(digests) == 7


def test_a_released_prefix_is_found_again() -> None:
    pool = BlockPool(8)
    keys = keys_of(list(range(12)))
    blocks = store(pool, keys)
    pool.release(blocks)
    assert pool.match(keys).blocks == blocks
    assert pool.match(keys_of([*range(8), 99, 99, 99, 99])).blocks == blocks[:2]
    assert pool.match(keys_of([7, *range(1, 12)])).blocks == []


def test_the_least_recently_used_prefix_is_evicted_from_its_end() -> None:
    pool = BlockPool(4)
    old, new = keys_of(list(range(8))), keys_of(list(range(100, 108)))
    pool.release(store(pool, old))
    pool.release(store(pool, new))
    pool.allocate(1)
    assert len(pool.match(old).blocks) == 1
    assert len(pool.match(new).blocks) == 2


def test_blocks_in_use_are_never_evicted() -> None:
    pool = BlockPool(3)
    keys = keys_of(list(range(8)))
    held = store(pool, keys)
    assert pool.num_available == 1
    assert not set(pool.allocate(1)) & set(held)


def test_colliding_hashes_never_share_a_block() -> None:
    pool = BlockPool(8)
    prompts = [[1, 1, 1, 1, 2, 2, 2, 2], [3, 3, 3, 3, 2, 2, 2, 2], [2, 2, 2, 2, 2, 2, 2, 2]]
    first, *others = (block_keys(tokens, BLOCK_SIZE, hasher=collide) for tokens in prompts)
    pool.release(store(pool, first))
    for keys in others:
        assert pool.match(keys).blocks == []
        pool.release(store(pool, keys))
        assert pool.match(keys).blocks == []
    assert pool.match(first).blocks != []


def test_equal_content_computed_twice_is_kept_once() -> None:
    pool = BlockPool(8)
    keys = keys_of(list(range(8)))
    first, second = store(pool, keys), store(pool, keys)
    pool.release(first)
    pool.release(second)
    assert (pool.num_cached, pool.num_free) == (2, 6)
    assert pool.match(keys).blocks == first


class PoolMachine(RuleBasedStateMachine):
    """Sequences that match, allocate, publish and release in any order."""

    holdings: Bundle[Holding] = Bundle("holdings")

    @initialize(num_blocks=st.integers(1, 12), collides=st.booleans())
    def start(self, num_blocks: int, collides: bool) -> None:
        self.pool = BlockPool(num_blocks)
        self.hasher = collide if collides else hash_block
        self.content: dict[int, tuple[int, ...]] = {}  # whole prefix that a held block was computed for
        self.refs: dict[int, int] = {}

    @rule(target=holdings, tokens=st.lists(st.integers(0, 1), min_size=4, max_size=16))
    def run(self, tokens: list[int]) -> Holding:
        keys = block_keys(tokens, BLOCK_SIZE, hasher=self.hasher)
        match = self.pool.match(keys)
        for index, block in enumerate(match.blocks):
            assert self.content[block] == tuple(tokens[: (index + 1) * BLOCK_SIZE])
        self.pool.acquire(match.blocks)
        num_new = min(len(keys) - len(match.blocks), self.pool.num_available)
        blocks = match.blocks + self.pool.allocate(num_new)
        uid = match.uid
        for index in range(len(match.blocks), len(blocks)):
            self.content[blocks[index]] = tuple(tokens[: (index + 1) * BLOCK_SIZE])
            uid = self.pool.publish(blocks[index], keys[index], uid)
        for block in blocks:
            self.refs[block] = self.refs.get(block, 0) + 1
        return blocks

    @rule(blocks=consumes(holdings))
    def release(self, blocks: Holding) -> None:
        self.pool.release(blocks)
        for block in blocks:
            self.refs[block] -= 1

    @invariant()
    def every_block_is_in_one_state(self) -> None:
        if hasattr(self, "pool"):
            pool = self.pool
            assert pool.num_used + pool.num_free + pool.num_cached == pool.num_blocks
            assert pool.num_used == sum(count > 0 for count in self.refs.values())
            assert all(pool.is_idle(block) == (count == 0) for block, count in self.refs.items())


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
