"""Reductions into private buffers are skipped where nothing of the buffer is used."""

from __future__ import annotations

import pytest

from tests.support.schedules.workloads import applied, check_meaning, notation
from tilewright.schedules.lowering.lower import clean
from tilewright.schedules.nest.loop_ir import loops
from tilewright.schedules.nest.verify_bounds import unproven_accesses
from tilewright.schedules.primitives import CacheWrite, ComputeAt, Primitive, Reorder, Split
from tilewright.schedules.workload.workload import Workload

PRODUCT = "T[i,j] += A[i,k] * B[k,j]"
TILES: tuple[Primitive, ...] = (
    Split("s1.d0", 3),
    Split("s1.d1", 4),
    Reorder(("s1.d0o", "s1.d1o", "s1.d0i", "s1.d1i")),
    ComputeAt("s0", "s1.d1o"),
)
ROWS: tuple[Primitive, ...] = (ComputeAt("s0", "s1.d0"),)


def chain(epilogue: str) -> Workload:
    return notation(f"{PRODUCT}; Y[i,j] = {epilogue}", A="f32[12,5]", B="f32[5,12]").normalised()


def bounds(workload: Workload, *steps: Primitive) -> list[str]:
    """The bounds of the loops over the reduction, after a check of the nest."""
    nest = applied(workload, *steps)
    check_meaning(workload, nest)
    cleaned = clean(nest)
    assert not unproven_accesses(cleaned)
    found = {str(bound) for loop in loops(cleaned.body) for bound in loop.bounds}
    return sorted(found)


def accumulated(steps: tuple[Primitive, ...]) -> tuple[Primitive, ...]:
    """The steps, with the sums in a buffer of their own: only its updates do not initialise it."""
    place = "s1.d1o" if steps is TILES else "s1.d0"
    return (*steps, CacheWrite("s0", place, "acc", register=False))


@pytest.mark.parametrize(
    ("epilogue", "expected"),
    [
        ("where(j <= i, T[i,j], 0.0)", ["3*s1.d0o >= 4*s1.d1o - 2"]),
        ("where(i < j, max(T[i,j], 1.0), 0.0)", ["4*s1.d1o >= 3*s1.d0o - 2"]),
        ("where(j <= i, T[i,j], 0.0) + where(j <= i, T[i,j], 1.0)", ["3*s1.d0o >= 4*s1.d1o - 2"]),
        ("where(i + j < 9, where(j <= i, T[i,j], 0.0), 2.0)",
         ["3*s1.d0o + 4*s1.d1o <= 8", "3*s1.d0o >= 4*s1.d1o - 2"]),
        ("T[i,j]", []),
        ("where(j <= i, 0.0, T[i,j])", []),
        ("where(j <= i, T[i,j], 0.0) + T[i,j]", []),
        ("where(j <= i, T[i,j], 0.0) + where(i <= j, T[i,j], 0.0)", []),
        ("where(T[i,j] > 0.0, T[i,j], 0.0)", []),
        ("where(T[i,j] > 0.0, where(j <= i, T[i,j], 0.0), 0.0)", []),
        ("where(j == i, T[i,j], 0.0)", []),
    ],
)  # fmt: skip
def test_a_tile_is_reduced_if_some_element_is_used(epilogue: str, expected: list[str]) -> None:
    assert bounds(chain(epilogue), *accumulated(TILES)) == expected


def test_a_buffer_of_all_columns_is_used_in_every_row() -> None:
    assert bounds(chain("where(j <= i, T[i,j], 0.0)"), *accumulated(ROWS)) == []
    (bound,) = bounds(chain("where(i < 7, T[i,j], 0.0)"), *accumulated(ROWS))
    assert bound == "s1.d0 <= 6"


def test_updates_that_initialise_a_buffer_stay() -> None:
    """The elements are read even where they are not used."""
    assert bounds(chain("where(j <= i, T[i,j], 0.0)"), *TILES) == []


def test_a_result_is_always_computed() -> None:
    workload = notation(
        f"{PRODUCT}; Y[i,j] = where(j <= i, T[i,j], 0.0); Z[i,j] = T[i,j] + 1.0",
        A="f32[12,5]", B="f32[5,12]",
    ).normalised()  # fmt: skip
    nest = clean(applied(workload, CacheWrite("s0", "s0.d0", "acc", register=False)))
    assert not any(loop.bounds for loop in loops(nest.body))


def test_a_buffer_that_is_read_inside_an_index_is_used() -> None:
    """The condition is around another read of it."""
    workload = notation(
        "T[i,j] += A[i,k] * B[k,j]; Y[i,j] = where(j <= i, T[i,j], 0) + X[clamp(T[i,j])]",
        A="i32[12,5]", B="i32[5,12]", X="i32[7]",
    ).normalised()  # fmt: skip
    assert bounds(workload, *accumulated(TILES)) == []
