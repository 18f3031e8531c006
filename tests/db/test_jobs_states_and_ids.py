"""The pure parts of jobs: the life of a job as a table, and ids that sort by time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.db.errors import BadTransition
from tilewright.db.jobs.jobs import new_ulid
from tilewright.db.values.job_states import NEXT, JobState, after_cancel_request, check_transition
from tilewright.db.values.moments import moment_of, rfc3339


def test_final_states_lead_nowhere_and_every_other_state_ends() -> None:
    assert {s for s in JobState if s.final} == {
        JobState.SUCCEEDED,
        JobState.FAILED,
        JobState.CANCELLED,
    }
    for state in JobState:
        reached = {state}
        while new := {n for s in reached for n in NEXT[s]} - reached:
            reached |= new
        assert any(s.final for s in reached)


@pytest.mark.parametrize("old", JobState)
@pytest.mark.parametrize("new", JobState)
def test_only_listed_transitions_pass(old: JobState, new: JobState) -> None:
    if new in NEXT[old]:
        check_transition("J", old, new)
    else:
        with pytest.raises(BadTransition, match=f"job J is {old}: can become .*; requested {new}"):
            check_transition("J", old, new)


@pytest.mark.parametrize("state", JobState)
def test_a_cancel_request_is_always_possible_and_ends_joining(state: JobState) -> None:
    after = after_cancel_request(state)
    assert after == state or after in NEXT[state]
    assert not after.joinable


MOMENTS = st.datetimes(datetime(1970, 1, 2), datetime(9000, 1, 1), timezones=st.just(UTC))


@given(MOMENTS, MOMENTS, st.binary(min_size=10, max_size=10))
def test_ids_sort_by_time(first: datetime, second: datetime, chance: bytes) -> None:
    early, late = sorted((first, second))
    ids = [new_ulid(early, lambda _: b"\xff" * 10), new_ulid(late, lambda _: chance)]
    assert all(len(i) == 26 and i.isalnum() and i.isupper() | i.isdigit() for i in ids)
    if late - early > timedelta(milliseconds=1):
        assert ids[0] < ids[1]


def test_a_known_ulid() -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert new_ulid(epoch, bytes) == "0" * 26
    assert new_ulid(epoch, lambda size: b"\xff" * size) == "0" * 10 + "Z" * 16
    assert new_ulid(epoch + timedelta(milliseconds=33), bytes) == "0000000011" + "0" * 16


@given(MOMENTS, MOMENTS)
def test_moments_as_text_sort_as_moments_do(first: datetime, second: datetime) -> None:
    assert moment_of(rfc3339(first)) == first
    assert (rfc3339(first) < rfc3339(second)) == (first < second)
    assert len(rfc3339(first)) == 27


def test_a_moment_has_a_zone() -> None:
    with pytest.raises(ValueError, match="a moment needs its zone"):
        rfc3339(datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="a moment needs its zone"):
        moment_of("2026-01-01T00:00:00")
