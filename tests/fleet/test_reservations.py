"""Several jobs on one fleet: who gets which place, without a wire."""

from __future__ import annotations

import random
from itertools import count

import pytest

from tilewright.tuner import timeouts
from tilewright.tuner.measure.fleet import reservations
from tilewright.tuner.measure.fleet.dispatch import Assignment
from tilewright.tuner.measure.fleet.reservations import Reservations, share_of

A, B, C = 1, 2, 3


class Job:
    """Books places for candidates it has waiting, and counts how often it was woken."""

    numbers = count(1)

    def __init__(self, book: Reservations, owner: int, candidates: int) -> None:
        self.book, self.owner, self.left = book, owner, candidates
        self.orders: dict[str, Assignment] = {}
        self.woken = self.jobs = 0

    def ask(self, *machines: str, share: int = 1) -> list[str]:
        """The machines that were ordered from."""
        made: list[Assignment] = []

        def assign(places: list[str], jobs: int) -> list[Assignment]:
            self.jobs = jobs
            for machine in places:
                size = min(share, self.left)
                if size:
                    self.left -= size
                    made.append(Assignment(f"t{next(self.numbers)}", machine, list(range(size))))
            return made

        def wake() -> None:
            self.woken += 1

        self.book.reserve(self.owner, machines, wake, assign)
        if not self.left:
            self.book.withdraw(self.owner)
        self.orders |= {a.task: a for a in made}
        return [a.machine for a in made]

    def end(self, machine: str) -> None:
        task = next(task for task, a in self.orders.items() if a.machine == machine)
        del self.orders[task]
        self.book.release(task)


def test_small_batches_of_several_jobs_do_not_meet_on_the_first_machine() -> None:
    book = Reservations()
    jobs = [Job(book, owner, 2) for owner in (A, B)]
    assert jobs[0].ask("a", "b", "c", "d") == ["a", "b"]
    assert jobs[1].ask("a", "b", "c", "d") == ["c", "d"]


def test_a_machine_that_has_the_work_open_is_preferred_among_idle_ones() -> None:
    book = Reservations()
    first, other = Job(book, A, 1), Job(book, B, 1)
    assert first.ask("b") == ["b"]
    first.end("b")
    assert other.ask("a", "b") == ["a"]
    other.end("a")
    first.left = other.left = 1
    assert first.ask("a", "b") == ["b"]
    assert other.ask("a", "b") == ["a"]


def test_no_machine_has_more_than_one_order_in_its_queue_and_who_waits_is_woken() -> None:
    book = Reservations()
    first, other = Job(book, A, 9), Job(book, B, 9)
    assert first.ask("a", "b") == ["a", "b", "a", "b"]
    assert other.ask("a", "b") == []
    assert other.woken == 0
    first.end("b")
    assert (first.woken, other.woken) == (1, 1)
    assert first.ask("a", "b") == []  # the other has less under way, and comes first
    assert other.ask("a", "b") == ["b"]


def test_who_was_woken_and_does_not_come_holds_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    book = Reservations()
    first, stuck = Job(book, A, 9), Job(book, B, 9)
    first.ask("a")
    stuck.ask("a")
    first.end("a")
    assert first.ask("a") == []
    monkeypatch.setattr(timeouts, "WAKE_REACTION_SECS", 0.0)
    assert first.ask("a") == ["a"]


def test_a_job_that_leaves_frees_its_places_and_its_wish() -> None:
    book = Reservations()
    first, other = Job(book, A, 9), Job(book, B, 9)
    first.ask("a")
    other.ask("a")
    book.leave(A)
    assert other.woken == 1
    assert other.ask("a") == ["a", "a"]
    assert other.jobs == 1


def test_kinds_of_machines_do_not_meet() -> None:
    book = Reservations()
    first, other = Job(book, A, 9), Job(book, B, 9)
    first.ask("a")
    other.ask("b")
    assert other.jobs == 1
    first.end("a")
    assert first.ask("a") == ["a"]  # nobody else waits for it


def test_orders_are_the_larger_the_more_jobs_share_the_machines() -> None:
    assert [share_of(16, 8, jobs) for jobs in (1, 2, 8, 20)] == [1, 2, 8, 16]
    assert share_of(16, 1, 1) == 16
    assert share_of(16, 4, 6) == 8, "two equal requests, rather than 12 and 4 candidates"
    assert share_of(3, 8, 1) == 1


@pytest.mark.parametrize("seed", range(20))
def test_whatever_jobs_do_every_candidate_is_ordered_and_no_queue_is_too_long(seed: int) -> None:
    rng = random.Random(seed)
    book = Reservations()
    machines = ["a", "b", "c"]
    jobs = [Job(book, owner, rng.randint(1, 40)) for owner in (A, B, C)]
    for _ in range(2000):
        job = rng.choice(jobs)
        if rng.random() < 0.5 and job.left:
            job.ask(*rng.sample(machines, rng.randint(1, 3)), share=rng.randint(1, 4))
        elif job.orders:
            job.end(rng.choice([a.machine for a in job.orders.values()]))
        out = [a.machine for j in jobs for a in j.orders.values()]
        assert all(out.count(m) <= reservations.REQUESTS_PER_MACHINE for m in machines)
    assert not any(job.left for job in jobs)
