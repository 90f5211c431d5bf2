import queue
from typing import Any

import pytest

from tests.doubles import ScriptedExecutor, says
from tests.llm_server.sockets import PATIENCE_S, Address, listening, read_until


def watched(**fields: Any) -> tuple[ScriptedExecutor, "queue.Queue[str]"]:
    """An executor and the ids of the sequences that are cancelled on it."""
    cancelled: queue.Queue[str] = queue.Queue()
    return ScriptedExecutor(says("a-long-story"), on_cancel=cancelled.put, **fields), cancelled


def one_more_works(address: Address, executor: ScriptedExecutor) -> None:
    address.loop.call_soon_threadsafe(executor.resume)
    with address.ask() as connection:
        assert b"a-long-story" in read_until(connection, b'"usage"')
    assert executor.live == set()


@pytest.mark.parametrize("num_choices", [1, 3])
def test_a_client_that_leaves_a_stream_takes_its_sequences_along(num_choices: int) -> None:
    executor, cancelled = watched(pause_after=2)
    with listening(executor) as address:
        with address.ask(stream=True, n=num_choices) as connection:
            read_until(connection, b'"content":"-"')
        assert len({cancelled.get(timeout=PATIENCE_S) for _ in range(num_choices)}) == num_choices
        one_more_works(address, executor)


@pytest.mark.parametrize("pause_after", [0, 3])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_before_any_byte_takes_its_sequence_along(stream: bool, pause_after: int) -> None:
    executor, cancelled = watched(pause_after=pause_after)
    started: queue.Queue[str] = queue.Queue()
    script = executor.script

    def starting(request: Any) -> Any:
        started.put(request.seq_id)
        return script(request)

    executor.script = starting
    with listening(executor) as address:
        with address.ask(stream=stream):
            seq_id = started.get(timeout=PATIENCE_S)
        assert cancelled.get(timeout=PATIENCE_S) == seq_id
        one_more_works(address, executor)


def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    executor, _ = watched()
    with listening(executor) as address:
        with address.connect(b'{"model"', Content_Length=100):
            pass
        one_more_works(address, executor)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_body_over_the_limit_without_a_length_is_refused_while_it_is_read() -> None:
    executor, _ = watched()
    with listening(executor) as address, address.connect(Transfer_Encoding="chunked") as connection:
        piece = b" " * 2**20
        for _ in range(33):
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        assert b"413 " in read_until(connection, b"request_too_large")
