"""Batches are within their budget, every text is in exactly one, and nobody starves."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from encoder_engine.serving.scheduler import FLOWS_A_BATCH, Scheduler, Waiting

COST, TOKENS = 100.0, 1000
requests = st.lists(
    st.tuples(
        st.integers(0, 3),  # flow
        st.integers(0, 1),  # key
        st.integers(0, 9),  # priority
        st.lists(st.floats(0.5, 150.0), min_size=1, max_size=30),
    ),
    max_size=12,
)


def waiting(flow: int, key: int, priority: int, costs: list[float]) -> Waiting:
    return Waiting(
        flow=flow, key=key, costs=costs, num_tokens=[int(c) + 1 for c in costs], priority=priority
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    drawn=requests,
    removed=st.sets(st.integers(0, 11)),
    after=st.integers(0, 5),
    each=st.sampled_from([None, 20.0, COST]),
)
def test_every_text_is_in_one_batch_within_the_budget(
    drawn: list[tuple[int, int, int, list[float]]],
    removed: set[int],
    after: int,
    each: float | None,
) -> None:
    scheduler, added = Scheduler(), [waiting(*one) for one in drawn]
    for request in added:
        scheduler.add(request)
    seen: Counter[tuple[int, int]] = Counter()
    left_out: set[int] = set()
    place = {id(request): number for number, request in enumerate(added)}
    turn = 0
    while scheduler.num_texts:
        if turn == after:
            for number in removed & set(range(len(added))):
                scheduler.remove(added[number])
                left_out.add(number)
            if not scheduler.num_texts:
                break
        turn += 1
        batch = scheduler.next_batch(COST, TOKENS, each)
        assert batch.num_texts >= 1
        assert batch.num_texts == 1 or (batch.cost <= COST and batch.num_tokens <= TOKENS)
        taken: dict[tuple[object, int], list[float]] = {}
        for request, start, stop in batch.parts:
            taken.setdefault((request.flow, request.priority), []).extend(request.costs[start:stop])
        for costs in taken.values():
            assert len(costs) == 1 or sum(costs) <= (COST if each is None else each) * (1 + 1e-12)
        for request, start, stop in batch.parts:
            assert request.key == batch.key
            for number in range(start, stop):
                seen[place[id(request)], number] += 1
    assert scheduler.num_tokens == 0
    assert set(seen.values()) <= {1}
    for number, request in enumerate(added):
        if number not in left_out:
            assert all(seen[number, text] == 1 for text in range(len(request.costs)))


def test_a_lone_text_waits_for_one_batch_beside_a_large_request() -> None:
    scheduler = Scheduler()
    scheduler.add(waiting(0, 0, 0, [10.0] * 1000))
    scheduler.next_batch(COST, TOKENS)
    lone = waiting(1, 0, 0, [10.0])
    scheduler.add(lone)
    assert any(part.request is lone for part in scheduler.next_batch(COST, TOKENS).parts)


def test_flows_share_batches_equally_and_by_priority() -> None:
    scheduler = Scheduler()
    flows = {0: 0, 1: 0, 2: 1}
    for flow, priority in flows.items():
        scheduler.add(waiting(flow, 0, priority, [1.0] * 1000))
    taken: Counter[object] = Counter()
    for _ in range(10):
        for request, start, stop in scheduler.next_batch(COST, TOKENS).parts:
            taken[request.flow] += stop - start
    # 2 : 2 : 1, to within a quantum.
    assert abs(taken[0] - taken[1]) <= COST / FLOWS_A_BATCH
    assert abs(taken[0] - 2 * taken[2]) <= 2 * COST / FLOWS_A_BATCH


def test_requests_of_another_model_begin_the_next_batch() -> None:
    scheduler = Scheduler()
    scheduler.add(waiting(0, 0, 0, [10.0] * 100))
    scheduler.add(waiting(1, 1, 0, [10.0] * 100))
    keys = [scheduler.next_batch(COST, TOKENS).key for _ in range(6)]
    assert keys == [0, 1, 0, 1, 0, 1]


def test_one_client_takes_less_of_a_batch_than_several_together() -> None:
    scheduler = Scheduler()
    scheduler.add(waiting(0, 0, 0, [1.0] * 300))
    batch = scheduler.next_batch(COST, TOKENS, each=10.0)
    assert batch.cost == 10.0
    for flow in range(1, 51):
        scheduler.add(waiting(flow, 0, 0, [1.0]))
    batch = scheduler.next_batch(COST, TOKENS, each=10.0)
    # The batch answers requests: of the one that it does not, it takes an eighth of ten.
    assert batch.cost == 51.0
    assert Counter(part.request.flow for part in batch.parts) == dict.fromkeys(range(51), 1)


@settings(deadline=None)
@given(
    before=st.integers(0, 6),
    same_flow=st.booleans(),
    cost=st.floats(0.5, 20.0),
    each=st.sampled_from([20.0, COST]),
)
def test_a_small_request_waits_for_one_slice_of_a_large_one(
    before: int, same_flow: bool, cost: float, each: float
) -> None:
    """After the slice that is computed, its batch has as much of the large one, or an eighth."""
    scheduler, large = Scheduler(), waiting(0, 0, 0, [1.0] * 2048)
    scheduler.add(large)
    for _ in range(before + 1):
        assert scheduler.next_batch(COST, TOKENS, each).cost == each
    small = waiting(0 if same_flow else 1, 0, 0, [cost])
    scheduler.add(small)
    # A client's own requests share its slice: the small one may come one batch later.
    for _ in range(1 + same_flow):
        batch = scheduler.next_batch(COST, TOKENS, each)
        if any(part.request is small for part in batch.parts):
            break
    else:
        raise AssertionError("the small request still waits")
    assert batch.cost <= 2 * cost + each / FLOWS_A_BATCH + 1.0


def test_a_large_request_is_computed_beside_small_ones_that_never_end() -> None:
    scheduler, large = Scheduler(), waiting(0, 0, 0, [1.0] * 500)
    scheduler.add(large)
    batches = 0
    while large.num_waiting:
        batches += 1
        for flow in range(1, 6):
            scheduler.add(waiting(flow, 0, 0, [1.0]))
        scheduler.next_batch(COST, TOKENS)
    assert batches <= 500 / (COST / FLOWS_A_BATCH)


@settings(deadline=None)
@given(
    large=st.lists(st.floats(1.0, 500.0), max_size=4),
    small=st.floats(0.5, 10.0),
    own=st.lists(st.floats(0.5, 10.0), max_size=3),
)
def test_no_more_is_computed_before_a_turn_than_estimated(
    large: list[float], small: float, own: list[float]
) -> None:
    scheduler = Scheduler()
    for flow, total in enumerate(large):
        scheduler.add(waiting(flow, 0, 0, [total / 8] * 8))
    for cost in own:
        scheduler.add(waiting(9, 0, 0, [cost]))
    load = scheduler.load(9, 0)
    total = sum(cost for cost, _ in scheduler.waiting.values())
    quantum = COST / FLOWS_A_BATCH
    estimate = load.before(small, sum(load.costs.values()), total, quantum)
    request = waiting(9, 0, 0, [small])
    scheduler.add(request)
    computed = 0.0
    while request.num_waiting:
        computed += scheduler.next_batch(COST, TOKENS).cost
    # A visit takes whole texts, and the batch that has the request is counted whole.
    most = max([cost / 8 for cost in large] + own, default=0.0)
    assert computed <= estimate + sum(own) + COST + small + most * (len(large) + 1)
