"""What is asked: endless streams of prompts, from a file or made of random words, and the bodies that carry them.

Everything follows from a seed, so two runs, or two servers in one run, are asked the same.
"""

import itertools
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_MAX_TOKENS = 128
# Common words: with the space before it, each is one token in nearly every vocabulary.
COMMON_WORDS = """
the of and to in is that for it was on are as with they be at one have this from by hot but what some you out
other were all there when up use your how said an each she which do their time if will way about many then them
write would like so these her long make thing see him two has look more day could go come did number sound no
most people my over know water than call first who may down side been now find any new work part take get place
made live where after back little only round man year came show every good me give our under name very through
just form sentence great think say help low line differ turn cause much mean before move right boy old too same
"""
WORDS = tuple(COMMON_WORDS.split())


class PromptError(ValueError):
    """A prompt file that cannot be read as one."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A chat to send. Messages are OpenAI's and passed on as they stand."""

    messages: tuple[Mapping[str, object], ...]
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What every request asks for; what is None is left to the prompt (`max_tokens`) or to the server (the others)."""

    max_tokens: int | None = None
    ignore_eos: bool = False
    temperature: float | None = 0.0
    top_p: float | None = None
    seed: int | None = None


def read_prompts(path: Path) -> list[Prompt]:
    """Read a file with one JSON object per line: `messages`, and `max_tokens` if it has its own. Raises PromptError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as exc:
        raise PromptError(f"{path}: {exc.strerror}") from exc
    prompts = [_read_prompt(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise PromptError(f"{path}: no prompts")
    return prompts


def _read_prompt(line: str, place: str) -> Prompt:
    try:
        entry = json.loads(line)
    except ValueError as exc:
        raise PromptError(f"{place}: {exc}") from exc
    match entry:
        case {"messages": [dict(), *_] as messages, "max_tokens": int(max_tokens)}:
            return Prompt(tuple(messages), max_tokens)
        case {"messages": [dict(), *_] as messages} if "max_tokens" not in entry:
            return Prompt(tuple(messages))
        case _:
            raise PromptError(f'{place}: not an object with "messages", a list, and perhaps "max_tokens", a number')


def cycle_prompts(prompts: list[Prompt], seed: int) -> Iterator[Prompt]:
    """Repeat the prompts for ever, in an order drawn once, so that a short run too meets all kinds."""
    return itertools.cycle(random.Random(f"order {seed}").sample(prompts, len(prompts)))


def random_prompts(num_words: int, seed: int) -> Iterator[Prompt]:
    """Make prompts of random words for ever; none begins like another, so none is answered from a prefix cache."""
    rng = random.Random(f"words {seed}")
    while True:
        yield Prompt(({"role": "user", "content": random_text(num_words, rng)},))


def share_prefix(prompts: Iterator[Prompt], num_words: int, seed: int) -> Iterator[Prompt]:
    """Put the same random words before every prompt, as a system message or at the start of the one it has."""
    prefix = random_text(num_words, random.Random(f"prefix {seed}"))
    for prompt in prompts:
        match prompt.messages:
            case ({"role": "system", "content": str(content)}, *rest):
                system = {"role": "system", "content": f"{prefix}\n{content}"}
            case rest:
                system = {"role": "system", "content": prefix}
        yield Prompt((system, *rest), prompt.max_tokens)


def random_text(num_words: int, rng: random.Random) -> str:
    """Return `num_words` words in random order."""
    return " ".join(rng.choices(WORDS, k=num_words))


def encode_body(prompt: Prompt, model: str, options: RequestOptions, index: int) -> bytes:
    """Return the JSON body of request number `index`; each has a sampling seed of its own where one is given."""
    body: dict[str, object] = {
        "model": model,
        "messages": prompt.messages,
        "max_tokens": options.max_tokens or prompt.max_tokens or DEFAULT_MAX_TOKENS,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    optional = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        "seed": None if options.seed is None else options.seed + index,
        "ignore_eos": options.ignore_eos or None,
    }
    body |= {name: value for name, value in optional.items() if value is not None}
    return json.dumps(body, ensure_ascii=False).encode()
