"""The scheduler against its invariants: no model, the sampled token is a function of the sequence."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from engines.config import SchedulerPolicy
from engines.contract import FinishReason, GenerationRequest, SamplingParams, TokenOutput
from engines.openvino.blocks import BlockPool, block_keys
from engines.openvino.policy import POLICIES, MaxUtilization, Policy
from engines.openvino.scheduler import MIN_CHUNK, Scheduler, chunk_size
from engines.openvino.sequence import SampledToken, ScheduledBatch, Sequence

BLOCK_SIZE = 4
STOP = 7


def make_scheduler(
    num_blocks: int = 64, max_batch_size: int = 4, max_num_tokens: int = 20, policy: Policy | None = None
) -> Scheduler:
    return Scheduler(BlockPool(num_blocks), BLOCK_SIZE, max_batch_size, max_num_tokens, policy)


def sequence(
    name: str, prompt: list[int], max_tokens: int = 4, *, arrival: int = 0, priority: int = 0, stop: bool = False
) -> Sequence:
    request = GenerationRequest(
        name,
        tuple(prompt),
        SamplingParams(),
        max_tokens,
        stop_token_ids=frozenset([STOP] if stop else []),
        priority=priority,
    )
    return Sequence(request, block_keys(prompt, BLOCK_SIZE), arrival, BLOCK_SIZE)


def step(scheduler: Scheduler, token_id: int = 0) -> tuple[ScheduledBatch, list[tuple[str, TokenOutput]]]:
    batch = scheduler.schedule()
    assert batch is not None
    return batch, scheduler.commit(batch, [SampledToken(token_id)] * len(batch.sampled))


def shares(batch: ScheduledBatch) -> dict[str, int]:
    return {item.seq.seq_id: item.num_tokens for item in batch.items}


@given(num_left=st.integers(1, 200), budget=st.integers(0, 64))
def test_a_chunk_never_is_one_token_and_never_leaves_one(num_left: int, budget: int) -> None:
    size = chunk_size(num_left, budget)
    assert 0 <= size <= min(num_left, budget)
    if num_left > 1:
        assert size != 1
        assert num_left - size != 1
    if budget >= 3:
        assert size > 0


def test_prompts_are_chunked_and_share_steps_with_decodes() -> None:
    scheduler = make_scheduler(max_num_tokens=20)
    scheduler.add(sequence("a", [1] * 6))
    assert shares(step(scheduler)[0]) == {"a": 6}
    scheduler.add(sequence("b", [2] * 30))
    assert shares(step(scheduler)[0]) == {"a": 1, "b": 19}
    batch, outputs = step(scheduler)
    assert shares(batch) == {"a": 1, "b": 11}
    assert [seq_id for seq_id, _ in outputs] == ["a", "b"]


def test_a_second_prompt_reuses_the_first_ones_blocks_but_leaves_two_tokens() -> None:
    scheduler = make_scheduler()
    prompt = list(range(16))
    scheduler.add(sequence("a", prompt))
    step(scheduler)
    scheduler.add(sequence("b", prompt))
    batch, outputs = step(scheduler)
    assert shares(batch) == {"a": 1, "b": 4}
    assert outputs[1][1].num_cached_tokens == 12


def test_a_prompt_that_is_just_being_computed_is_waited_for() -> None:
    scheduler = make_scheduler(max_num_tokens=20)
    prompt = [1] * 34
    for name in ("a", "b", "c"):
        scheduler.add(sequence(name, prompt))
    assert shares(step(scheduler)[0]) == {"a": 20}
    assert shares(step(scheduler)[0]) == {"a": 14}
    batch, _ = step(scheduler)
    assert shares(batch) == {"a": 1, "b": 2, "c": 2}


def test_who_waits_for_a_prefix_goes_on_when_its_computation_is_cancelled() -> None:
    scheduler = make_scheduler(max_num_tokens=20)
    for name in ("a", "b"):
        scheduler.add(sequence(name, [1] * 34))
    step(scheduler)
    scheduler.cancel("a")
    assert shares(step(scheduler)[0]) == {"b": 14}  # 20 tokens of a's work were kept


def test_nobody_is_admitted_who_might_not_be_able_to_finish() -> None:
    scheduler = make_scheduler(num_blocks=6)
    scheduler.add(sequence("a", [1] * 8, max_tokens=8))  # 4 blocks in the worst case
    scheduler.add(sequence("b", [2] * 8, max_tokens=8))
    scheduler.add(sequence("c", [3], max_tokens=2))  # would fit, but b was first
    assert shares(step(scheduler)[0]) == {"a": 8}
    for _ in range(7):
        assert shares(step(scheduler)[0]) == {"a": 1}
    assert shares(step(scheduler)[0]) == {"b": 8, "c": 1}


def test_max_utilization_starts_what_fits_now_and_preempts_the_last_in_line() -> None:
    scheduler = make_scheduler(num_blocks=6, policy=MaxUtilization())
    scheduler.add(sequence("a", [1] * 7, max_tokens=12, arrival=1))
    scheduler.add(sequence("b", [2] * 6, max_tokens=12, arrival=2))
    assert shares(step(scheduler)[0]) == {"a": 7, "b": 6}
    while not scheduler.counters.num_preemptions:
        step(scheduler)
    assert [seq.seq_id for seq in scheduler.waiting] == ["b"]
    num_generated = scheduler.waiting[0].num_generated_tokens
    assert num_generated
    ended: list[str] = []
    comeback = []
    while scheduler.has_work:
        batch, outputs = step(scheduler)
        comeback += [share for name, share in shares(batch).items() if name == "b" and "a" in ended]
        ended += [name for name, output in outputs if output.finish_reason]
    assert ended == ["a", "b"]
    # Its first prompt block was still cached; then each generated token was put in one by one.
    assert comeback == [2, *[1] * 11]


def test_lower_priority_numbers_go_first_and_equal_ones_in_order_of_arrival() -> None:
    scheduler = make_scheduler(max_batch_size=1)
    for arrival, (name, priority) in enumerate([("late", 5), ("a", 0), ("first", -1), ("b", 0)]):
        scheduler.add(sequence(name, [arrival + 1] * 3, max_tokens=1, arrival=arrival, priority=priority))
    assert [step(scheduler)[1][0][0] for _ in range(4)] == ["first", "a", "b", "late"]


def test_a_stop_token_beats_the_length_limit() -> None:
    scheduler = make_scheduler()
    scheduler.add(sequence("stop", [1, 2], max_tokens=1, stop=True))
    scheduler.add(sequence("length", [1, 2], max_tokens=1))
    _, outputs = step(scheduler, token_id=STOP)
    assert {name: output.finish_reason for name, output in outputs} == {
        "stop": FinishReason.STOP,
        "length": FinishReason.LENGTH,
    }


def test_a_failed_step_takes_only_its_own_sequences() -> None:
    scheduler = make_scheduler(max_batch_size=1)
    scheduler.add(sequence("a", [1] * 8))
    scheduler.add(sequence("b", [2] * 8))
    batch = scheduler.schedule()
    assert batch is not None
    assert scheduler.fail(batch) == ["a"]
    assert scheduler.pool.num_free == scheduler.pool.num_blocks
    assert shares(step(scheduler)[0]) == {"b": 8}


def test_a_failed_step_publishes_nothing() -> None:
    scheduler = make_scheduler()
    prompt = [1] * 8
    scheduler.add(sequence("a", prompt))
    batch = scheduler.schedule()
    assert batch is not None
    scheduler.fail(batch)
    assert scheduler.pool.match(block_keys(prompt, BLOCK_SIZE)).blocks == []


@dataclass(frozen=True)
class Arrival:
    at_step: int
    prompt: list[int]
    max_tokens: int
    cancel_at: int | None
    priority: int


ARRIVALS = st.lists(
    st.builds(
        Arrival,
        at_step=st.integers(0, 20),
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=40),
        max_tokens=st.integers(1, 12),
        cancel_at=st.one_of(st.none(), st.integers(0, 40)),
        priority=st.integers(-1, 1),
    ),
    max_size=12,
)


def check_batch(scheduler: Scheduler, batch: ScheduledBatch) -> None:
    assert sum(item.num_tokens for item in batch.items) <= scheduler.max_num_tokens
    assert len(scheduler.running) <= scheduler.max_batch_size
    owners: dict[int, list[Sequence]] = {}
    for item in batch.items:
        seq, end = item.seq, item.start + item.num_tokens
        assert item.start == seq.num_computed_tokens
        assert len(seq.block_table) * BLOCK_SIZE >= end
        assert len(seq.block_table) <= seq.max_blocks
        is_prefill = item.start < seq.num_prompt_tokens
        assert item.num_tokens == 1 or is_prefill
        assert not is_prefill or end <= seq.num_prompt_tokens
        assert not is_prefill or item.num_tokens >= MIN_CHUNK or seq.num_prompt_tokens == 1
        assert item.num_rows == (end == len(seq.token_ids))
        for block in seq.block_table[item.start // BLOCK_SIZE :]:
            owners.setdefault(block, []).append(seq)
    assert all(len(writers) == 1 for writers in owners.values()), "two sequences write one block"


@settings(max_examples=200, deadline=None)
@given(
    arrivals=ARRIVALS,
    num_blocks=st.integers(13, 40),
    max_batch_size=st.integers(1, 4),
    budget=st.integers(20, 40),
    policy=st.sampled_from(sorted(POLICIES)),
)
def test_every_sequence_ends_and_nothing_leaks(
    arrivals: list[Arrival], num_blocks: int, max_batch_size: int, budget: int, policy: SchedulerPolicy
) -> None:
    scheduler = make_scheduler(num_blocks, max_batch_size, budget, POLICIES[policy]())
    generated: dict[str, int] = {}
    ended: set[str] = set()
    cancelled: set[str] = set()
    for now in range(10_000):
        for index, arrival in enumerate(arrivals):
            name = str(index)
            if arrival.at_step == now:
                scheduler.add(
                    sequence(name, arrival.prompt, arrival.max_tokens, arrival=index, priority=arrival.priority)
                )
            if arrival.cancel_at == now and arrival.at_step <= now:
                scheduler.cancel(name)
                cancelled.add(name)
        first = min(scheduler.running, key=lambda seq: seq.sort_key, default=None)
        batch = scheduler.schedule()
        assert first is None or first in scheduler.running, "the first in line was preempted"
        pool = scheduler.pool
        assert pool.num_used + pool.num_free + pool.num_cached == num_blocks
        if batch is None:
            if now > 40:
                break
            continue
        check_batch(scheduler, batch)
        for name, output in scheduler.commit(batch, [SampledToken(0)] * len(batch.sampled)):
            assert name not in ended
            generated[name] = generated.get(name, 0) + 1
            if output.finish_reason:
                ended.add(name)
    assert not scheduler.has_work
    assert scheduler.pool.num_used == 0
    for index, arrival in enumerate(arrivals):
        if str(index) not in cancelled:
            assert generated[str(index)] == arrival.max_tokens
            assert str(index) in ended
