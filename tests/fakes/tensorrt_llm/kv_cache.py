"""The paged KV cache: counts blocks, and knows which prefixes it could reuse."""

from typing import Any

from .llmapi.llm_args import TorchLlmArgs

FREE_GPU_BYTES = 2**26


class KvCache:
    def __init__(self, arguments: TorchLlmArgs, config: dict[str, Any]) -> None:
        own = arguments.kv_cache_config
        self._block_size = own.tokens_per_block
        self._reuse = own.enable_block_reuse
        head_size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        per_token = 2 * 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * head_size
        tokens = int(FREE_GPU_BYTES * own.free_gpu_memory_fraction) // per_token
        self.num_blocks = min(tokens, own.max_tokens or tokens) // self._block_size
        self.num_used = 0
        self._prefixes: dict[tuple[str | None, tuple[int, ...]], None] = {}  # in order of use

    def try_admit(self, live: Any) -> bool:
        """Take blocks for all that a request may become."""
        tokens = len(live.prompt) + live.max_tokens
        needed = -(-tokens // self._block_size) * live.params.n
        if self.num_used + needed > self.num_blocks:
            return False
        self.num_used += needed
        live.num_blocks = needed
        live.cached_tokens = self._num_cached(live)
        return True

    def release(self, live: Any) -> None:
        """Give the blocks back; those that are full can be reused from now on."""
        self.num_used -= live.num_blocks
        tokens = [*live.prompt, *(live.generated[0][:-1] if live.generated else [])]
        for end in range(self._block_size, len(tokens) + 1, self._block_size):
            self._prefixes.pop((live.salt, tuple(tokens[:end])), None)
            self._prefixes[live.salt, tuple(tokens[:end])] = None
        while len(self._prefixes) > self.num_blocks:
            del self._prefixes[next(iter(self._prefixes))]

    def _num_cached(self, live: Any) -> int:
        if not self._reuse:
            return 0
        end = 0
        while end + self._block_size < len(live.prompt) and (
            (live.salt, tuple(live.prompt[: end + self._block_size])) in self._prefixes
        ):
            end += self._block_size
        return end

    def stats(self) -> dict[str, Any]:
        return {
            "maxNumBlocks": self.num_blocks,
            "freeNumBlocks": self.num_blocks - self.num_used,
            "usedNumBlocks": self.num_used,
            "tokensPerBlock": self._block_size,
        }
