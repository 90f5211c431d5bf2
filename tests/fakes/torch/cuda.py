"""Devices and streams."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_current = threading.local()


class ExternalStream:
    def __init__(self, stream_ptr: int) -> None:
        self.cuda_stream = stream_ptr


@contextmanager
def stream(chosen: ExternalStream | None) -> Iterator[None]:
    before = current_stream()
    if chosen is not None:
        _current.stream = chosen.cuda_stream
    try:
        yield
    finally:
        _current.stream = before


def current_stream() -> int | None:
    found: int | None = getattr(_current, "stream", None)
    return found


def device_count() -> int:
    from tensorrt_llm.stage import STAGE

    visible: int = STAGE.num_visible_gpus
    return visible
