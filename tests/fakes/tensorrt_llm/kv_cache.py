"""The paged KV cache: counts blocks, knows which prefixes it could reuse, and keeps what was computed for them."""

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

FREE_GPU_BYTES = 2**26


class Cached(Protocol):
    """What the cache needs of a request."""

    num_blocks: int
    cached_tokens: int

    @property
    def prompt(self) -> list[int]: ...

    @property
    def num_tokens(self) -> int:
        """Prompt and all that may be generated."""
        ...

    @property
    def num_sequences(self) -> int: ...

    def identity(self) -> Sequence[Hashable]:
        """What tells the tokens of the only sequence so far from others, one by one; the last has no KV yet."""
        ...

    def content(self, start: int, end: int) -> Any:
        """What was computed for tokens; handed to those who reuse it."""
        ...

    def take_over(self, content: Any) -> None:
        """Take what another request computed for the next block."""
        ...


def num_tokens_that_fit(
    num_layers: int, num_kv_heads: int, head_size: int, fraction: float | None, max_tokens: int | None
) -> int:
    per_token = 2 * 2 * num_layers * num_kv_heads * head_size
    tokens = int(FREE_GPU_BYTES * (0.9 if fraction is None else fraction)) // per_token
    return min(tokens, max_tokens or tokens)


class KvCache:
    def __init__(self, block_size: int, num_tokens: int, *, reuse: bool) -> None:
        self.block_size = block_size
        self.num_blocks = num_tokens // block_size
        self.num_used = 0
        self._reuse = reuse
        self._prefixes: dict[tuple[Hashable, ...], Any] = {}  # in order of use

    def try_admit(self, live: Cached) -> bool:
        """Take blocks for all that a request may become."""
        needed = -(-live.num_tokens // self.block_size) * live.num_sequences
        if self.num_used + needed > self.num_blocks:
            return False
        self.num_used += needed
        live.num_blocks = needed
        self._take_over(live)
        return True

    def release(self, live: Cached) -> None:
        """Give the blocks back; those that are full can be reused from now on."""
        self.num_used -= live.num_blocks
        identity = live.identity()
        for end in range(self.block_size, len(identity) + 1, self.block_size):
            key = tuple(identity[:end])
            known = self._prefixes.pop(key, None)
            self._prefixes[key] = live.content(end - self.block_size, end) if known is None else known
        while len(self._prefixes) > self.num_blocks:
            del self._prefixes[next(iter(self._prefixes))]

    def _take_over(self, live: Cached) -> None:
        """Reuse blocks from the start on; the last prompt token is computed in any case."""
        identity = live.identity()
        end = self.block_size
        while self._reuse and end < len(live.prompt) and tuple(identity[:end]) in self._prefixes:
            live.take_over(self._prefixes[tuple(identity[:end])])
            live.cached_tokens = end
            end += self.block_size

    def stats(self) -> dict[str, Any]:
        return {
            "maxNumBlocks": self.num_blocks,
            "freeNumBlocks": self.num_blocks - self.num_used,
            "usedNumBlocks": self.num_used,
            "tokensPerBlock": self.block_size,
        }
