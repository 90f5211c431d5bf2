"""A streamed chat answer, read for its timing: which bytes are text, when they came, how the answer ended.

The client shares its cores with the server it measures, so one search per event decides whether it carries text; JSON
is parsed only for the few that carry none (role, finish, usage, error). The search cannot be fooled by an answer that
talks about JSON: inside a JSON string every quote is escaped, so `"content":"` occurs only as a key with its value.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

_has_text = re.compile(rb'"(?:content|reasoning_content|reasoning)":\s*"[^"]').search


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counts them; `cached_tokens` is the part of the prompt it did not compute, if it says so."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. Times are seconds after the request was sent.

    `text_times_s` has one entry per event with text; those of one network read share their time. `last_token_s` is the
    event that carried the finish reason, which is where a last token without text (an end token) shows.
    """

    text_times_s: Sequence[float]
    last_token_s: float
    end_s: float
    finish_reason: str | None
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Failure:
    """A request without a complete answer: `kind` to count it by, `message` to understand it."""

    kind: str
    message: str


class AnswerReader:
    """Reads one answer from its bytes, wherever the network cuts them."""

    __slots__ = ("_done_at", "_error", "_finish_reason", "_finished_at", "_last_text", "_rest", "_text_times", "_usage")

    def __init__(self) -> None:
        self._text_times: list[float] = []
        self._last_text = b""
        self._rest = b""
        self._finish_reason: str | None = None
        self._finished_at: float | None = None
        self._done_at: float | None = None
        self._usage: Usage | None = None
        self._error: Failure | None = None

    def feed(self, data: bytes, now: float) -> None:
        """Take what one network read returned at the time `now`."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue  # blank lines between events, comments, event names
            if _has_text(line):
                self._text_times.append(now)
                self._last_text = line
            else:
                self._read_control(line[5:].strip(), now)

    def result(self, sent_at: float) -> Answer | Failure:
        """Return the answer, after the last byte; a Failure if it broke off or carried an error."""
        if self._finish_reason is None and self._last_text:  # some servers finish in the event of the last text
            self._read_json(self._last_text[5:], self._text_times[-1])
        if self._error is not None:
            return self._error
        if self._done_at is None:
            return Failure("truncated", "the stream ended without [DONE]")
        times = [*self._text_times[-1:], *([] if self._finished_at is None else [self._finished_at])]
        if not times:
            return Failure("empty", "the stream had neither text nor a finish reason")
        return Answer(
            text_times_s=[time - sent_at for time in self._text_times],
            last_token_s=max(times) - sent_at,
            end_s=self._done_at - sent_at,
            finish_reason=self._finish_reason,
            usage=self._usage,
        )

    def _read_control(self, payload: bytes, now: float) -> None:
        if payload == b"[DONE]":
            self._done_at = now
        else:
            self._read_json(payload, now)

    def _read_json(self, payload: bytes, now: float) -> None:
        try:
            event = json.loads(payload)
        except ValueError:
            event = None
        if not isinstance(event, dict):
            self._error = Failure("bad_event", payload[:200].decode(errors="replace"))
            return
        if event.get("error"):
            self._error = Failure("stream_error", json.dumps(event["error"])[:200])
        if event.get("usage"):
            self._usage = _read_usage(event["usage"])
        match event.get("choices"):
            case [{"finish_reason": str(reason)}, *_]:
                self._finish_reason, self._finished_at = reason, now


def _read_usage(usage: object) -> Usage | None:
    """Read a usage object; None if it lacks the counts, which is treated as no usage at all."""
    match usage:
        case {"prompt_tokens": int(prompt), "completion_tokens": int(completion), **others}:
            details = others.get("prompt_tokens_details")
            cached = details.get("cached_tokens") if isinstance(details, dict) else None
            return Usage(prompt, completion, cached)
        case _:
            return None
