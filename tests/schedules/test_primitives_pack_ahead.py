"""PackAhead: copies of constant inputs that are made once, and everything it must refuse."""

from __future__ import annotations

import pytest

from tests.support.golden_text import Golden
from tests.support.schedules.workloads import applied, notation
from tilewright.schedules.algebra.scalar import loads
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import plain_nest
from tilewright.schedules.nest.loop_ir import Allocate, BufferScope, walk
from tilewright.schedules.nest.prepacking import prepack_problem, split_prepack
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.nest.verify_nest import MalformedNest, verify
from tilewright.schedules.primitives import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    PackAhead,
    Parallel,
    Partition,
    Prefetch,
    Reorder,
    Split,
    TransformLayout,
    Vectorize,
)
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

COPY = (CacheRead("i1", "", "p"), PackAhead("p"))
PANELS = (*COPY, TransformLayout("p", ((1, 4),), ((1, 1), (0, 0), (1, 2))))


def product(b: str = "const f32[5,6]") -> Workload:
    return notation("C[i,j] += A[i,k] * B[k,j]", A="f32[7,5]", B=b)


def test_a_copy_of_a_constant_is_made_ahead(golden: Golden) -> None:
    nest = applied(product(), *PANELS)
    assert to_text(nest) == golden
    parts = split_prepack(nest)
    assert [b.name for b in parts.buffers] == ["p"]
    assert len(parts.copies) == 1
    assert not any(isinstance(s, Allocate) for s in walk(parts.rest))


def test_the_loops_that_fill_it_are_scheduled_like_others() -> None:
    nest = applied(
        product(), *PANELS, Split("p.1", 4), Reorder(("p.1o", "p.0", "p.1i")), Vectorize("p.1i"),
        Partition("p.0", 2), Prefetch("i1", "p.1o", 1),
    )  # fmt: skip
    assert len(split_prepack(nest).copies) == 1
    halves = applied(product(), *COPY, Partition("p.0", 2), Parallel("p.0"))
    assert len(split_prepack(halves).copies) == 2


def test_two_constants_and_a_copy_of_another_input_stand_side_by_side() -> None:
    workload = notation(
        "C[i,j] += A[i,k] * B[k,j]; D[i,j] = C[i,j] + b[j]",
        A="f32[7,5]", B="const f32[5,6]", b="const f32[6]",
    )  # fmt: skip
    nest = applied(
        workload, *COPY, CacheRead("i0", "", "a"), CacheRead("i2", "", "q"), PackAhead("q")
    )
    parts = split_prepack(nest)
    assert sorted(b.name for b in parts.buffers) == ["p", "q"]
    private = [s.buffer for s in walk(parts.rest) if isinstance(s, Allocate)]
    assert {b.name for b in private} == {"a", "s0"}


def test_a_stage_of_constants_alone_is_made_ahead_too() -> None:
    folded = notation(
        "W[k,j] = B[k,j] * g[j]; C[i,j] += A[i,k] * W[k,j]",
        A="f32[7,5]", B="const f32[5,6]", g="const f32[6]",
    )  # fmt: skip
    nest = applied(folded, PackAhead("s0"))
    assert len(split_prepack(nest).copies) == 1


def test_what_may_change_between_calls_is_not_made_ahead() -> None:
    copied = CacheRead("i1", "", "p").apply(plain_nest(product("f32[5,6]")))
    problem = "depends on 'i1', which is not a constant input; these are: none"
    with pytest.raises(ScheduleError, match=problem):
        PackAhead("p").apply(copied)
    both = notation(
        "W[k,j] = B[k,j] * g[j]; C[i,j] += A[i,k] * W[k,j]",
        A="f32[7,5]", B="const f32[5,6]", g="f32[6]",
    )  # fmt: skip
    with pytest.raises(ScheduleError, match="depends on 'i2', which is not a constant input"):
        PackAhead("s0").apply(plain_nest(both))


def test_only_copies_outside_all_loops_can_be_made_ahead() -> None:
    nest = CacheRead("i1", "s0.d0", "p").apply(plain_nest(product()))
    with pytest.raises(ScheduleError, match="'p' is allocated inside a loop"):
        PackAhead("p").apply(nest)


def test_the_buffer_must_be_one_of_the_workspace() -> None:
    nest = plain_nest(product())
    with pytest.raises(ScheduleError, match="there is no buffer 'q'"):
        PackAhead("q").apply(nest)
    with pytest.raises(ScheduleError, match="'i1' is in argument; this needs one in the workspace"):
        PackAhead("i1").apply(nest)
    with pytest.raises(ScheduleError, match="'p' is in prepacked"):
        PackAhead("p").apply(Trace(COPY).apply(nest))
    registers = CacheRead("i1", "", "p", register=True).apply(nest)
    with pytest.raises(ScheduleError, match="'p' is in register"):
        PackAhead("p").apply(registers)


def test_a_stage_that_is_not_first_or_needs_another_is_not_made_ahead() -> None:
    chain = notation(
        "V[k,j] = exp(B[k,j]); W[k,j] = V[k,j] * g[j]; C[i,j] += A[i,k] * W[k,j]",
        A="f32[7,5]", B="const f32[5,6]", g="const f32[6]",
    )  # fmt: skip
    with pytest.raises(ScheduleError, match="'s0' is not filled at the start of its block"):
        PackAhead("s0").apply(plain_nest(chain))


def test_later_steps_cannot_make_it_depend_on_anything_else() -> None:
    nest = Trace(COPY).apply(plain_nest(product()))
    again = "a buffer could no longer be prepacked"
    with pytest.raises(ScheduleError, match=f"{again}: it depends on 'q'"):
        CacheRead("i1", "", "q").apply(nest)
    with pytest.raises(ScheduleError, match=f"{again}: filling it needs another buffer, 'q'"):
        CacheRead("i1", "p.0", "q").apply(nest)
    with pytest.raises(ScheduleError, match=f"{again}: filling it needs another buffer, 'q'"):
        CacheWrite("p", "p.0", "q", register=False).apply(nest)


def test_it_may_be_filled_through_registers_of_one_thread() -> None:
    """Blocks that are turned; what threads share would be memory that packing does not have."""
    through = (*COPY, CacheRead("i1", "p.0", "q", register=True), Vectorize("q.1"))
    for more in ((), (Parallel("p.0"),)):
        nest = applied(product(), *through, Vectorize("p.1"), *more)
        assert len(split_prepack(nest).copies) == 1
    again = "a buffer could no longer be prepacked: filling it needs another buffer, 'q'"
    with pytest.raises(ScheduleError, match=again):
        Trace((*through, Parallel("p.1"))).apply(plain_nest(product()))


def test_moving_it_into_a_loop_makes_it_an_ordinary_copy() -> None:
    nest = applied(product(), *COPY, ComputeAt("p", "s0.d0"))
    scopes = {s.buffer.name: s.buffer.scope for s in walk(nest.body) if isinstance(s, Allocate)}
    assert scopes == {"p": BufferScope.WORKSPACE}
    assert prepack_problem(nest) is None


def test_a_nest_that_marks_what_cannot_be_is_malformed() -> None:
    nest = Trace(COPY).apply(plain_nest(product()))
    changed = plain_nest(product("f32[5,6]"))
    broken = type(nest)(changed.inputs, nest.outputs, nest.body)
    with pytest.raises(MalformedNest, match="cannot be prepacked: it depends on 'i1'"):
        verify(broken)


def test_its_trace_is_json() -> None:
    trace = Trace(PANELS)
    assert Trace.from_json(trace.to_json()) == trace
    assert trace.to_json()[1] == {"do": "PackAhead", "buffer": "p"}


@pytest.mark.parametrize("kind", ["", "const "])
def test_a_stage_that_reads_nothing_is_made_ahead_where_there_is_an_entry_for_it(kind: str) -> None:
    text = "T[i] = f32(i) * 2.0; Y[i] = X[i] * W[i] + T[i]"
    workload = notation(text, {"i": 8}, X="f32[8]", W=f"{kind}f32[8]")
    name = next(s.name for s in workload.normalised().stages if not loads(s.body))
    if kind:
        assert len(split_prepack(applied(workload, PackAhead(name))).copies) == 1
        return
    with pytest.raises(ScheduleError, match=f"'{name}': no input is constant, so the kernel has"):
        applied(workload, PackAhead(name))
