"""KeepElements: elements stay in registers while a loop's body computes them."""

from __future__ import annotations

from math import inf

import pytest

from tests.support.golden_text import Golden
from tests.support.schedules.tuples import ARGMAX, first_greatest, of_rows, with_position
from tests.support.schedules.workloads import applied, check_meaning, notation
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.nest.finding import buffers_in
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.primitives import (
    KeepElements,
    Merge,
    Parallel,
    Partition,
    Primitive,
    Reorder,
    ReverseComputeAt,
    Split,
    Unroll,
    Vectorize,
)
from tilewright.schedules.trace import Trace

COLUMNS = (
    Split("s0.d0", 4),
    Reorder(("s0.d0o", "s0.r0", "s0.d0i")),
    Vectorize("s0.d0i"),
    Partition("s0.r0", 1),
)
EIGHT = of_rows(with_position, (-inf, 0), first_greatest, 1, shape=(8, 5)).normalised()
READ = notation("S[i,k] = cumsum(X[i,k], k); Y[i,k] = S[i,k] * 2", X="f32[5,37]")


def test_components_in_registers_in_golden_text(golden: Golden) -> None:
    kept = (KeepElements(name, "s0.d0o", f"{name}.kept") for name in ("s0.c0", "s0"))
    nest = applied(EIGHT, *COLUMNS, *kept)
    assert "s0.c0" not in buffers_in(nest)
    assert to_text(nest) == golden


def test_masked_elements_are_not_written_by_the_first_statement() -> None:
    with pytest.raises(ScheduleError, match="leaves elements out"):
        applied(ARGMAX.normalised(), *COLUMNS, KeepElements("s0", "s0.d0o", "kept"))


def test_outputs_are_written_back_and_hidden_buffers_are_not() -> None:
    nest = applied(EIGHT, *COLUMNS)
    assert KeepElements("s0.c0", "s0.d0o", "c").made(nest).loops == {}
    assert [*KeepElements("s0", "s0.d0o", "s").made(nest).loops] == ["s0.d0i.out"]


def test_any_stores_are_kept() -> None:
    steps = (ReverseComputeAt("s1", "s0"), KeepElements("s0", "s0.d1", "one", register=False))
    with pytest.raises(ScheduleError, match="not one store"):
        applied(READ.normalised(), *steps)  # a scan needs the element of the iteration before
    rows = notation("S[i,k] = X[i,k] + 1; Y[i,k] = S[i,k] * 2", X="f32[5,37]")
    nest = applied(
        rows, ReverseComputeAt("s1", "s0"), KeepElements("s0", "s0.d1", "one", register=False)
    )
    assert "s0" not in buffers_in(nest)


def test_a_row_is_kept_until_it_is_transposed() -> None:
    """The last tile ends before its last column, and the private row ends there too."""
    workload = notation("S[i,k] = X[i,k] + 1; Y[k,i] = S[i,k] * 2", X="f32[5,37]").normalised()
    steps = (
        Split("s0.d1", 8),
        Reorder(("s1.d1", "s1.d0")),
        Merge("s0.d0", "s1.d1"),
        KeepElements("s0", "s1.d1", "row", register=False),
    )
    nest = applied(workload, *steps)
    assert "s0" not in buffers_in(nest)
    assert buffers_in(nest)["row"].shape == (1, 37)
    check_meaning(workload, nest)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ((KeepElements("s0", "s0.d0", "kept"),), "not one store"),
        ((KeepElements("i0", "s0.d0", "kept"),), "does not write"),
        ((KeepElements("s0", "s0.r0", "s0.c0"),), "in use"),
        ((*COLUMNS, KeepElements("s0", "s0.d0i", "kept")), "vectorized"),
        ((Split("s0.d0", 2), Parallel("s0.d0i"), KeepElements("s0", "s0.d0o", "k")), "parallel"),
        ((Unroll("s0.d0"), KeepElements("nothing", "s0.d0", "kept")), "no buffer"),
    ],
    ids=str,
)
def test_what_is_not_kept(steps: tuple[Primitive, ...], reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        applied(ARGMAX.normalised(), *steps)


def test_a_step_is_read_back_from_its_document() -> None:
    trace = Trace((KeepElements("s0", "s0.d0o", "kept"),))
    assert Trace.from_json(trace.to_json()) == trace
