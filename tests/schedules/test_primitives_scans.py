"""Primitives for scans: blocks of a scan, buffers of its last elements, and stages after it."""

from __future__ import annotations

import pytest

from tests.support.golden_text import Golden
from tests.support.schedules.workloads import applied, notation, softmax
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.nest.finding import buffers_in
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.primitives import (
    CarryScan,
    Inline,
    Parallel,
    Partition,
    Primitive,
    Reorder,
    ReverseComputeAt,
    ScanBlocks,
    Split,
    Stream,
    Unroll,
    Vectorize,
)
from tilewright.schedules.workload.workload import Workload

ROWS = notation("S[i,k] = cumsum(X[i,k], k)", X="f32[3,37]")
ROW = notation("S[k] = cumsum(X[k], k)", X="f32[67]")
COLUMNS = notation("S[k,j] = cumsum(X[k,j], k)", X="f32[9,19]")
READ = notation("S[i,k] = cumsum(X[i,k], k); Y[i,k] = S[i,k] * X[i,k]", X="f32[4,37]")
READ_TWICE = notation(
    "S[i,k] = cumsum(X[i,k], k); Y[i,k] = S[i,k] * 2; M[i] += S[i,k]", X="f32[4,37]"
)
AFTER_ALL = notation("S[i,k] = cumsum(X[i,k], k); Y[i,k] = S[i,k] / S[i,36]", X="f32[4,37]")

BLOCKS = (Split("s0.d1", 16), Reorder(("s0.d1o", "s0.d0")), ScanBlocks("s0.d1o", "t", "c"))
SHARED = (Parallel("s0.d1o.t"), Parallel("s0.d1o"))
LANES = (Split("s0.d1i", 4), Vectorize("s0.d1ii"))

WORDS = ["", ", reverse", ", exclusive", ", reverse, exclusive"]


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("function", ["cumsum", "cumprod", "cummax", "cummin"])
@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_blocks_of_a_scan_are_independent(function: str, words: str, dtype: str) -> None:
    workload = notation(f"S[i,k] = {function}(X[i,k], k{words})", X=f"{dtype}[3,37]")
    applied(workload, *BLOCKS, *SHARED, *LANES)


def test_blocks_in_golden_text(golden: Golden) -> None:
    assert to_text(applied(ROWS, *BLOCKS, *SHARED, *LANES)) == golden


def test_blocks_in_turn_begin_with_the_element_that_was_stored(golden: Golden) -> None:
    steps = (Split("s0.d0", 32), Split("s0.d0i", 16), ScanBlocks("s0.d0io", "t", "c"))
    nest = applied(ROW, *steps, Parallel("s0.d0io"), Split("s0.d0ii", 4), Vectorize("s0.d0iii"))
    assert to_text(nest) == golden


def test_blocks_down_columns() -> None:
    steps = (Split("s0.d0", 4), ScanBlocks("s0.d0o", "t", "c"))
    applied(COLUMNS, *steps, Parallel("s0.d0o.t"), Parallel("s0.d0o"), Vectorize("s0.d1"))


def test_the_blocks_of_a_scan_without_blocks_depend_on_each_other() -> None:
    for step in (Parallel("s0.d1o"), Reorder(("s0.d1o", "s0.d0")), ScanBlocks("s0.d1o", "t", "t")):
        steps = (Split("s0.d1", 16), Reorder(("s0.d1o", "s0.d0")))
        with pytest.raises(ScheduleError):
            applied(ROWS, *steps, Parallel("s0.d1o"), step)


REFUSED: list[tuple[Workload, tuple[Primitive, ...], str]] = [
    (ROWS, (ScanBlocks("s0.d1", "t", "c"),), "one loop over consecutive elements"),
    (ROWS, (ScanBlocks("s0.d0", "t", "c"),), "one loop over consecutive elements"),
    (ROWS, (Split("s0.d1", 16), ScanBlocks("s0.d1o", "t", "t")), "different names"),
    (ROWS, (Split("s0.d1", 64), ScanBlocks("s0.d1o", "t", "c")), "single iteration"),
    (ROWS, (Split("s0.d1", 16), ScanBlocks("s0.d1o", "s0", "c")), "in use"),
    (ROWS, (Split("s0.d1", 16), Vectorize("s0.d1i"), ScanBlocks("s0.d1o", "t", "c")), "serial"),
    (softmax(), (ScanBlocks("s1.d0", "t", "c"),), "a single scan"),
    (softmax(), (CarryScan("s1", "s1.d0", "q", 4),), "must contain the scan"),
    (ROWS, (CarryScan("s0", "s0.d1", "q", 0),), "width"),
    (ROWS, (Split("s0.d1", 8), CarryScan("s0", "s0.d1i", "q", 8)), "may begin outside"),
    (ROWS, (Partition("s0.d1", 8), CarryScan("s0", "s0.d1", "q", 8)), "partitioned"),
    (COLUMNS, (CarryScan("s0", "s0.d1", "q", 8),), "no loop along the scan"),
    (AFTER_ALL, (ReverseComputeAt("s1", "s0"),), "at its own index only"),
    (ROWS, (ReverseComputeAt("s0", "i0"),), "no reduction"),
    (softmax(), (ReverseComputeAt("s3", "s1"),), "between"),
    (softmax(), (ReverseComputeAt("s3", "s2"),), "no reduction"),
    (READ, (Split("s1.d0", 2), ReverseComputeAt("s1", "s0")), "unscheduled"),
    (READ, (ReverseComputeAt("s0", "s1"),), "its own index only"),
    (READ, (Stream("s1"), Stream("s0")), "not an output"),
]


@pytest.mark.parametrize(
    ("workload", "steps", "words"), REFUSED, ids=[f"{s[-1]}" for _, s, _ in REFUSED]
)
def test_what_does_not_fit_is_refused(
    workload: Workload, steps: tuple[Primitive, ...], words: str
) -> None:
    with pytest.raises(ScheduleError, match=words):
        applied(workload, *steps)


@pytest.mark.parametrize("words", WORDS)
def test_a_stage_is_computed_in_the_loops_of_the_scan(words: str) -> None:
    workload = notation(
        f"S[i,k] = cumsum(X[i,k], k{words}); Y[i,k] = S[i,k] * X[i,k]", X="f32[4,37]"
    )
    rows = (Split("s0.d0", 2), Split("s0.d1", 8))
    order = Reorder(("s0.d0o", "s0.d1o", "s0.d0i", "s0.d1i"))
    steps = (ReverseComputeAt("s1", "s0"), *rows, order, Unroll("s0.d0i"), Vectorize("s0.d1i"))
    applied(workload, *steps, Parallel("s0.d0o"))
    kept = CarryScan("s0", "s0.d1o", "kept", 8, register=True)
    nest = applied(workload, *steps, kept, Partition("s0.d1o", 4), Parallel("s0.d0o"))
    assert "s0" not in buffers_in(nest)


def test_what_is_kept_in_golden_text(golden: Golden) -> None:
    steps = (ReverseComputeAt("s1", "s0"), Split("s0.d1", 8), Vectorize("s0.d1i"))
    assert to_text(applied(READ, *steps, CarryScan("s0", "s0.d1o", "kept", 8))) == golden


@pytest.mark.parametrize("width", [1, 3, 8, 16])
def test_any_width_keeps_enough_for_loops_without_lanes(width: int) -> None:
    applied(READ, ReverseComputeAt("s1", "s0"), CarryScan("s0", "s0.d1", "kept", width))
    applied(COLUMNS, CarryScan("s0", "s0.d0", "kept", width))


def test_lanes_need_an_element_each() -> None:
    steps = (Split("s0.d1", 8), Vectorize("s0.d1i"))
    applied(ROWS, *steps, CarryScan("s0", "s0.d1o", "kept", 16))
    for width in (1, 4, 6):
        with pytest.raises(ScheduleError):
            applied(ROWS, *steps, CarryScan("s0", "s0.d1o", "kept", width))


def test_threads_do_not_share_what_is_kept() -> None:
    applied(ROWS, CarryScan("s0", "s0.d1", "kept", 4), Parallel("s0.d0"))
    with pytest.raises(ScheduleError, match="may write the same element"):
        applied(ROWS, CarryScan("s0", "s0.d0", "kept", 4), Parallel("s0.d0"))


def test_a_scan_that_others_read_is_still_stored() -> None:
    nest = applied(READ_TWICE, ReverseComputeAt("s1", "s0"), CarryScan("s0", "s0.d1", "kept", 4))
    assert {"s0", "kept"} <= buffers_in(nest).keys()


def test_a_stage_moves_to_its_reader_or_the_reader_to_it() -> None:
    later = notation(
        "S[k] = cumsum(X[k], k); m[z] max= X[k] + w[z]; Y[k] = S[k] + m[0]", X="f32[9]", w="f32[2]"
    )
    applied(later, ReverseComputeAt("s2", "s0"))
    earlier = notation(
        "S[k] = cumsum(X[k], k); m[z] max= S[k] + w[z]; Y[k] = S[k] + 1", X="f32[9]", w="f32[2]"
    )
    applied(earlier, ReverseComputeAt("s2", "s0"))
    neither = notation(
        "S[k] = cumsum(X[k], k); m[z] max= S[k] + w[z]; Y[k] = S[k] + m[0]", X="f32[9]", w="f32[2]"
    )
    with pytest.raises(ScheduleError, match="depends on both"):
        applied(neither, ReverseComputeAt("s2", "s0"))


def test_a_scan_may_be_streamed_unless_others_read_it() -> None:
    applied(ROWS, Stream("s0"))
    both = notation("S[k] = cumsum(X[k], k); Y[k] = S[k] + S[0]", X="f32[9]")
    assert "s0" not in both.outputs
    with pytest.raises(ScheduleError, match="not an output"):
        applied(both, Stream("s0"))


def test_an_inlined_producer_is_computed_in_the_scan() -> None:
    workload = notation("Z[k] = X[8-k] * M[k]; S[k] = cumsum(Z[k], k)", X="f32[9]", M="f32[9]")
    applied(workload, Inline("s0"), Split("s1.d0", 4), Vectorize("s1.d0i"))
