"""Who measures what, and what follows a loss: decisions, without a wire or a clock."""

from __future__ import annotations

import random
from itertools import count

import pytest

from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.tuner.measure.fleet.dispatch import MAX_DEATHS, MAX_UNBEGUN, Assignment, Dispatch
from tilewright.tuner.measure.fleet.reservations import REQUESTS_PER_MACHINE, share_of

OK = MeasureResult(MeasureStatus.OK, (1.0,), 1.0)


def batch(size: int, *, together: bool = False) -> Dispatch:
    numbers = count(1)
    return Dispatch(size, lambda: f"t{next(numbers)}", together)


def assign(dispatch: Dispatch, *machines: str) -> list[Assignment]:
    """As a fleet with nothing else to do would."""
    machines = tuple(m for m in machines if m not in dispatch.refused)
    busy = [a.machine for a in dispatch.under_way.values()]
    places = [
        machine
        for room in range(REQUESTS_PER_MACHINE)
        for machine in machines
        if busy.count(machine) <= room
    ]
    return dispatch.assign(places, share_of(dispatch.count, len(machines), jobs=1))


def given(dispatch: Dispatch, *machines: str) -> list[tuple[str, list[int]]]:
    return [(a.machine, a.unanswered) for a in assign(dispatch, *machines)]


def test_one_machine_gets_the_whole_batch_so_that_compiling_overlaps_with_timing() -> None:
    assert given(batch(16), "a") == [("a", list(range(16)))]


def test_several_share_it_with_one_order_each_in_the_queue() -> None:
    dispatch = batch(16)
    assert given(dispatch, "a", "b") == [
        ("a", [0, 1, 2, 3]),
        ("b", [4, 5, 6, 7]),
        ("a", [8, 9, 10, 11]),
        ("b", [12, 13, 14, 15]),
    ]
    assert given(batch(16), *"abcdefgh") == [(m, [i]) for i, m in enumerate("abcdefgh" * 2)]


def test_a_machine_that_is_through_gets_the_next_order() -> None:
    dispatch = batch(40)
    first = assign(dispatch, "a", "b")
    assert not assign(dispatch, "a", "b")
    assert [a.machine for a in assign(dispatch, "a", "b", "c")] == []  # all is given out
    for position in list(first[0].unanswered):
        assert dispatch.answer(first[0].task, position, OK) == [position]
    assert dispatch.end(first[0].task) == []
    assert len(dispatch.results) == 10


def test_what_a_lost_machine_had_not_answered_is_ordered_again_and_nothing_else() -> None:
    dispatch = batch(8)
    mine, theirs, queued, _ = assign(dispatch, "a", "b")
    dispatch.begin(mine.task)
    assert dispatch.answer(mine.task, 0, OK) == [0]
    dispatch.answer(theirs.task, 2, OK)
    assert (mine.machine, queued.machine) == ("a", "a")
    assert dispatch.lose(mine.task) == []
    assert dispatch.lose(queued.task) == []
    again = [position for a in assign(dispatch, "b", "c") for position in a.unanswered]
    assert sorted(again) == [1, 4, 5]


def test_only_a_candidate_that_was_alone_is_blamed() -> None:
    dispatch = batch(4)
    orders = assign(dispatch, "a")
    dispatch.begin(orders[0].task)
    assert dispatch.lose(orders[0].task) == []
    for _ in range(MAX_DEATHS):
        for order in assign(dispatch, "b"):
            assert len(order.unanswered) == 1
            dispatch.begin(order.task)
            if order.unanswered == [2]:
                dispatch.lose(order.task)
            else:
                dispatch.answer(order.task, order.unanswered[0], OK)
                dispatch.end(order.task)
    while not dispatch.done:
        for order in assign(dispatch, "b"):
            dispatch.begin(order.task)
            if order.unanswered == [2]:
                dispatch.lose(order.task)
            else:
                dispatch.answer(order.task, order.unanswered[0], OK)
                dispatch.end(order.task)
    assert [dispatch.results[i].status for i in range(4)] == ["ok", "ok", "lost", "ok"]
    assert f"{MAX_DEATHS} machines" in dispatch.results[2].detail


def test_orders_that_waited_in_the_queue_of_a_lost_machine_are_innocent() -> None:
    dispatch = batch(2)
    for _ in range(MAX_UNBEGUN):
        for order in assign(dispatch, "a", "b"):
            assert dispatch.lose(order.task) == []
    assert not dispatch.results


def test_a_candidate_that_kills_before_it_is_seen_to_begin_is_found_out_as_well() -> None:
    dispatch = batch(1)
    for _ in range(MAX_UNBEGUN + MAX_DEATHS):
        for order in assign(dispatch, "a"):
            dispatch.lose(order.task)
    assert dispatch.results[0].status is MeasureStatus.LOST


def test_a_lost_scheduler_blames_nobody() -> None:
    dispatch = batch(3)
    for _ in range(20):
        for order in assign(dispatch, "a"):
            dispatch.begin(order.task)
        dispatch.interrupt()
    assert not dispatch.results
    assert given(dispatch, "a") == [("a", [0, 1, 2])]


def test_a_late_answer_counts_once() -> None:
    dispatch = batch(2)
    (old,) = assign(dispatch, "a")
    dispatch.interrupt()
    assert dispatch.answer(old.task, 0, OK) == [0]
    assert given(dispatch, "b") == [("b", [1])]
    assert dispatch.answer(old.task, 0, OK) == []


def test_a_machine_that_refuses_is_asked_no_more() -> None:
    dispatch = batch(2)
    (order,) = assign(dispatch, "small")
    dispatch.refuse(order.task)
    assert given(dispatch, "small") == []
    assert given(dispatch, "small", "large") == [("large", [0, 1])]


def test_compared_candidates_are_timed_by_one_machine_or_again_from_the_first() -> None:
    dispatch = batch(3, together=True)
    (order,) = assign(dispatch, "a", "b")
    assert order.unanswered == [0, 1, 2]
    dispatch.begin(order.task)
    assert dispatch.answer(order.task, 0, OK) == []
    assert not assign(dispatch, "a", "b")
    assert dispatch.lose(order.task) == []
    (again,) = assign(dispatch, "b")
    assert again.unanswered == [0, 1, 2]
    assert dispatch.answer(order.task, 1, OK) == []  # of the machine that was given up
    for position in range(3):
        assert dispatch.answer(again.task, position, OK) == []
    assert dispatch.end(again.task) == [0, 1, 2]
    assert dispatch.done


def test_given_up_means_lost_and_done() -> None:
    dispatch = batch(2)
    (order,) = assign(dispatch, "a")
    dispatch.answer(order.task, 1, OK)
    assert dispatch.give_up("stopped") == [0]
    assert dispatch.done
    assert dispatch.results[0].status is MeasureStatus.LOST


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("seed", range(50))
def test_whatever_happens_each_candidate_is_settled_once(seed: int, *, together: bool) -> None:
    """Answers, ends, losses of machines and schedulers in any order, some of them late."""
    rng = random.Random(seed)
    dispatch = batch(rng.randint(1, 20), together=together)
    settled: list[int] = []
    old: list[tuple[str, int]] = []
    for _ in range(3000):
        if dispatch.done:
            break
        machines = rng.sample("abcd", rng.randint(0, 4))
        for order in assign(dispatch, *machines):
            old += [(order.task, position) for position in order.unanswered]
        match rng.randrange(12):
            case 0:
                dispatch.interrupt()
            case 1 if dispatch.under_way:
                settled += dispatch.lose(rng.choice(list(dispatch.under_way)))
            case 2 if old:
                settled += dispatch.answer(*rng.choice(old), OK)
            case 3 if dispatch.under_way:
                settled += dispatch.end(rng.choice(list(dispatch.under_way)))
            case _ if dispatch.under_way:
                order = dispatch.under_way[rng.choice(list(dispatch.under_way))]
                dispatch.begin(order.task)
                if order.unanswered:
                    settled += dispatch.answer(order.task, order.unanswered[0], OK)
                if not order.unanswered:
                    settled += dispatch.end(order.task)
    assert dispatch.done
    assert sorted(settled) == list(range(dispatch.count))
