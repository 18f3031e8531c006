"""Grades: a better grade wins over a faster time, and nothing is called better than it is."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.service.records import HOST, TOOLCHAIN, make_record
from tilewright.schedules.record import Toolchain, TuningRecord
from tilewright.schedules.target import Cache, Target
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers.grades import StoredRecord, choose, grade_of
from tilewright.service.grade import Grade

OTHER_COMPILER = Toolchain(TOOLCHAIN.codegen_version + 1, "0.1.0", "1.0")
MOCKED = Toolchain(0, "simulated", "abc")


def stored(record: TuningRecord, made_for: Target) -> StoredRecord:
    return StoredRecord(record, made_for, record.key)


@pytest.mark.parametrize(
    ("made_for", "grade"),
    [
        (HOST, Grade.EXACT),
        (replace(HOST, threads=2), Grade.SAME_CPU),
        (replace(HOST, caches=(Cache(65536, 8),)), Grade.SAME_CPU),
        (replace(HOST, cpu="haswell"), Grade.COMPATIBLE),
        (replace(HOST, cpu="haswell", features=("avx", "avx2")), Grade.COMPATIBLE),
        (replace(HOST, features=("avx", "avx2")), Grade.COMPATIBLE),
        (replace(HOST, cpu="znver5", features=(*HOST.features, "avx512f")), None),
        (replace(HOST, vector_bits=512), None),
        (replace(HOST, triple="aarch64-unknown-linux-gnu"), None),
    ],
)
def test_a_grade_says_where_the_record_was_made(made_for: Target, grade: Grade | None) -> None:
    if made_for.vector_bits == 512:
        made_for = replace(made_for, cpu="other")
    assert grade_of(made_for, HOST) == grade


@given(
    host=st.frozensets(st.sampled_from(["a", "b", "c", "d"])),
    made=st.frozensets(st.sampled_from(["a", "b", "c", "d"])),
)
def test_no_record_is_served_that_needs_more_than_the_host_has(
    host: frozenset[str], made: frozenset[str]
) -> None:
    grade = grade_of(
        replace(HOST, cpu="x", features=tuple(sorted(made))),
        replace(HOST, cpu="y", features=tuple(sorted(host))),
    )
    assert (grade is not None) == (made <= host)


def test_a_better_grade_wins_over_a_faster_time(workload: Workload) -> None:
    elsewhere = replace(HOST, threads=2)
    chosen = choose(
        [
            stored(make_record(workload, elsewhere, secs=1e-6), elsewhere),
            stored(make_record(workload, HOST, secs=1e-3), HOST),
        ],
        HOST,
        TOOLCHAIN,
        Grade.COMPATIBLE,
    )
    assert chosen is not None
    assert chosen[0] is Grade.EXACT


def test_among_equals_the_faster_wins(workload: Workload) -> None:
    slow = stored(make_record(workload, secs=2e-3), HOST)
    fast = stored(make_record(workload, secs=1e-3), HOST)
    chosen = choose([slow, fast], HOST, TOOLCHAIN, Grade.EXACT)
    assert chosen is not None
    assert chosen[1] is fast


def test_another_compilers_record_is_not_exact_and_says_so(workload: Workload) -> None:
    found = [stored(make_record(workload, toolchain=OTHER_COMPILER), HOST)]
    assert choose(found, HOST, TOOLCHAIN, Grade.EXACT) is None
    chosen = choose(found, HOST, TOOLCHAIN, Grade.COMPATIBLE)
    assert chosen is not None
    assert chosen[0] is Grade.COMPATIBLE
    assert "not verified" in chosen[2]


def test_mocked_timings_say_that_they_are_mocked(workload: Workload) -> None:
    found = [stored(make_record(workload, toolchain=MOCKED), HOST)]
    chosen = choose(found, HOST, TOOLCHAIN, Grade.EXACT)
    assert chosen is not None
    assert chosen[0] is Grade.EXACT
    assert "mocked (simulated)" in chosen[2]


def test_a_grade_satisfies_itself_and_what_is_less() -> None:
    grades = list(Grade)
    for better, worse in pairwise(grades):
        assert better.satisfies(worse)
        assert not worse.satisfies(better)
        assert better.satisfies(better)
