"""What parsing costs: `python -m tests.stylers.cost` prints microseconds a token for one parser of each grammar."""

import json
import random
import statistics
import time
from collections.abc import Sequence

import stylers
from stylers import Styler, ToolCall

WORDS = (" the", " of", " river", ",", " a", ".", " city\n", " is", "ing", " 12", " é", "😀")
NUM_TOKENS = 2000
TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": {"properties": {"text": {"type": "string"}, "n": {"type": "array"}}}},
}


def content_tokens(styler: Styler) -> list[str]:
    words = random.Random(0).choices(WORDS, k=NUM_TOKENS)
    return ["<|channel|>", "final", "<|message|>", *words] if styler.name == "gpt-oss" else words


def call_tokens(styler: Styler) -> list[str]:
    assert styler.call_format is not None
    numbers = [{"i": i, "half": i / 2, "even": not i % 2} for i in range(100)]
    text = "".join(content_tokens(styler))[:4500]
    raw = styler.call_format.write([ToolCall("look", json.dumps({"text": text, "n": numbers}))])
    return [raw[at : at + 3] for at in range(0, len(raw), 3)][:NUM_TOKENS]


def microseconds_a_token(styler: Styler, tokens: Sequence[str]) -> float:
    """The median of seven answers, each parsed token by token."""
    took = []
    for _ in range(7):
        parser = styler.new_parser(tools=[TOOL])
        start = time.perf_counter()
        for token in tokens:
            parser.feed(token)
        parser.flush()
        took.append((time.perf_counter() - start) / len(tokens) * 1e6)
    return statistics.median(took)


def main() -> None:
    by_grammar = {str(styler.grammar(False)): styler for styler in map(stylers.get, stylers.names())}
    print(f"{'':24} content   in a call   (microseconds a token, answers of {NUM_TOKENS} tokens)")
    for styler in by_grammar.values():
        content = microseconds_a_token(styler, content_tokens(styler))
        call = f"{microseconds_a_token(styler, call_tokens(styler)):10.2f}" if styler.call_format else ""
        print(f"{styler.name:24} {content:7.2f} {call}")


if __name__ == "__main__":
    main()
