"""What an answer cost, in tokens."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """The prompt once, and the sampled tokens of all choices: reasoning, markup and end tokens included."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    """Prompt tokens that came out of the prefix cache."""

    def to_openai(self) -> dict[str, object]:
        """Return it in OpenAI's shape."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }
