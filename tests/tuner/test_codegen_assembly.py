"""What the machine gets: vectors of the target's width, tiles in registers, nothing spilled."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from tests.support.paths import example_target
from tests.support.schedules.workloads import matmul
from tilewright.schedules.dtypes import DType
from tilewright.schedules.primitives import CacheRead, Parallel, Split, TransformLayout, Unroll
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Sketch
from tilewright.schedules.trace import Step, Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.emit.kernel import assembly_text, compile_kernel, llvm_text
from tilewright.tuner.emit.object_code import optimised

TARGETS = ("znver3", "znver5", "neoverse-n1")
WIDEST = {"znver3": "%ymm", "znver5": "%zmm", "neoverse-n1": ".4s"}
FMA = {"znver3": "vfmadd", "znver5": "vfmadd", "neoverse-n1": "fmla"}


@lru_cache(maxsize=8)
def product(name: str, threads: int = 1) -> tuple[Workload, Sketch]:
    workload = matmul(192, 192, 192)
    return workload, space_for(workload, example_target(name, threads)).sketches[0]


def default_trace(name: str, threads: int = 1) -> tuple[Workload, Trace]:
    workload, sketch = product(name, threads)
    return workload, sketch.trace(sketch.default())


def setting(sketch: Sketch, **values: Any) -> tuple[int, ...]:
    """The default setting with the knobs named moved to these values."""
    base = values.pop("base", None) or sketch.default()
    return tuple(
        knob.values.index(values[knob.name]) if knob.name in values else chosen
        for knob, chosen in zip(sketch.knobs, base, strict=True)
    )


def spills(assembly: str) -> list[str]:
    """Lines that keep a vector register on the stack."""
    x86 = r"%[xyz]mm\d+,\s*-?\d*\(%rsp|\(%rsp[^)]*\),.*%[xyz]mm"
    arm = r"\b(str|stp|ldr|ldp)\s+[qv]\d+.*\[(sp|x29)"
    return [line for line in assembly.splitlines() if re.search(f"{x86}|{arm}", line)]


def innermost_loops(assembly: str) -> list[list[str]]:
    """The instructions of each loop without a label inside, its jump back included."""
    found: list[list[str]] = []
    label, lines = "", list[str]()
    for line in assembly.splitlines():
        if match := re.match(r"(\.LBB\w+):", line):
            label, lines = match[1], []
            continue
        lines.append(line)
        if label and re.search(rf"\b(j\w+|b\.\w+|cbn?z|tbn?z)\b.*{re.escape(label)}$", line):
            found.append([*lines])
            label = ""
    return found


def loop_with_most(assembly: str, word: str) -> list[str]:
    """The innermost loop that has the most instructions with `word` in them."""
    return max(innermost_loops(assembly), key=lambda b: sum(word in line for line in b))


@pytest.mark.parametrize("name", TARGETS)
def test_accumulators_are_values_and_not_stack_slots(name: str) -> None:
    workload, trace = default_trace(name)
    text = str(optimised(llvm_text(workload, trace, example_target(name)), example_target(name)))
    assert "alloca" not in text
    assert not spills(assembly_text(workload, trace, example_target(name)))


@pytest.mark.parametrize("name", TARGETS)
def test_vectors_are_as_wide_as_the_registers(name: str) -> None:
    workload, trace = default_trace(name)
    hot = loop_with_most(assembly_text(workload, trace, example_target(name)), FMA[name])
    products = [line for line in hot if FMA[name] in line]
    assert products
    assert all(WIDEST[name] in line for line in products)


def feasible_tiles(name: str, pack: int) -> list[tuple[int, int, tuple[int, ...]]]:
    """Every register tile the rules allow, with a setting of few blocks and whole tiles' code."""
    _, sketch = product(name)
    knobs = {knob.name: knob for knob in sketch.knobs}
    width = example_target(name).lanes(DType.F32)
    found, base = [], sketch.default()
    for vectors in knobs["tile_vectors"].values:
        for rows in knobs["tile_rows"].values:
            ragged = 192 % (vectors * width) != 0 or 192 % rows != 0
            chosen = setting(
                sketch, tile_vectors=vectors, tile_rows=rows, unroll_reduction=1, pack_columns=pack,
                copy_rows=0, peel_remainders=2 if ragged else 0, column_blocks=1, row_blocks=1,
                reduction_blocks=1, base=base,
            )  # fmt: skip
            if sketch.feasible(np.asarray([chosen]))[0]:
                found.append((vectors, rows, chosen))
    return found


@pytest.mark.parametrize("pack", [0, 1])
@pytest.mark.parametrize("name", ["znver3", "znver5"])
def test_no_feasible_tile_spills(name: str, pack: int) -> None:
    workload, sketch = product(name)
    tiles = feasible_tiles(name, pack)
    assert len(tiles) >= 20
    # The largest tiles need the most registers.
    tiles.sort(key=lambda tile: -(tile[0] + 1) * tile[1])
    for vectors, rows, chosen in tiles[:8]:
        text = assembly_text(workload, sketch.trace(chosen), example_target(name))
        hot = loop_with_most(text, FMA[name])
        assert sum(FMA[name] in line for line in hot) == vectors * rows
        assert not spills("\n".join(hot)), f"{rows} rows of {vectors} vectors"


def edited(trace: Trace, change: dict[type[Step], Any]) -> Trace:
    """`trace` with the first step of each type replaced, or dropped for None."""
    steps = []
    left = dict(change)
    for step in trace.steps:
        if type(step) in left:
            new = left.pop(type(step))(step)
            steps += [] if new is None else [new]
        else:
            steps.append(step)
    assert not left
    return Trace(tuple(steps))


def fmas(name: str, trace: Trace, workload: Workload) -> int:
    hot = loop_with_most(assembly_text(workload, trace, example_target(name)), FMA[name])
    return sum(FMA[name] in line for line in hot)


def test_the_tile_and_the_unroll_factor_are_the_products_in_the_loop() -> None:
    workload, sketch = product("znver3")
    for vectors, rows, unroll in ((2, 4, 1), (2, 6, 1), (1, 8, 1), (2, 4, 2), (2, 4, 4)):
        chosen = setting(sketch, tile_vectors=vectors, tile_rows=rows, unroll_reduction=unroll)
        count = fmas("znver3", sketch.trace(chosen), workload)
        assert count == vectors * rows * unroll


def test_the_width_of_the_vector_split_is_the_width_of_the_registers() -> None:
    workload, sketch = product("znver3")
    trace = sketch.trace(
        setting(sketch, tile_vectors=2, tile_rows=4, unroll_reduction=1, pack_columns=0)
    )
    narrow = Trace(
        tuple(Split(s.loop, 4) if isinstance(s, Split) and s.factor == 8 else s
              for s in trace.steps)
    )  # fmt: skip
    assert narrow != trace
    wide_text = assembly_text(workload, trace, example_target("znver3"))
    narrow_text = assembly_text(workload, narrow, example_target("znver3"))
    assert "vfmadd" in wide_text
    assert any("%ymm" in l for l in loop_with_most(wide_text, "vfmadd") if "vfmadd" in l)
    products = [l for l in loop_with_most(narrow_text, "vfmadd") if "vfmadd" in l]
    assert products
    assert all("%ymm" not in line for line in products)


def test_one_row_more_or_less_is_an_accumulator_more_or_less() -> None:
    workload, sketch = product("znver3")
    four = fmas(
        "znver3",
        sketch.trace(setting(sketch, tile_rows=4, tile_vectors=2, unroll_reduction=1)),
        workload,
    )
    three = fmas(
        "znver3",
        sketch.trace(setting(sketch, tile_rows=3, tile_vectors=2, unroll_reduction=1)),
        workload,
    )
    assert (four, three) == (8, 6)


def test_without_the_packing_steps_there_is_no_workspace() -> None:
    workload, sketch = product("znver3")
    trace = sketch.trace(setting(sketch, pack_columns=1, copy_rows=0))
    packed = compile_kernel(workload, trace, example_target("znver3"))
    packs = {s.name for s in trace.steps if isinstance(s, CacheRead)}
    kept = [
        s for s in trace.steps
        if not (isinstance(s, CacheRead | TransformLayout))
        and not any(str(getattr(s, "loop", "")).startswith(p) for p in packs)
        and not any(str(n).startswith(p) for n in getattr(s, "order", ()) for p in packs)
    ]  # fmt: skip
    bare = compile_kernel(workload, Trace(tuple(kept)), example_target("znver3"))
    assert packed.workspace_bytes > 0
    assert bare.workspace_bytes == 0


def test_without_the_unroll_step_registers_cannot_hold_the_tile() -> None:
    from tilewright.schedules.errors import ScheduleError

    workload, sketch = product("znver3")
    trace = sketch.trace(setting(sketch, tile_rows=4, tile_vectors=2))
    dropped = Trace(tuple(s for s in trace.steps if not isinstance(s, Unroll)))
    with pytest.raises(ScheduleError, match="must be unrolled or vectorised"):
        compile_kernel(workload, dropped, example_target("znver3"))


def test_without_the_parallel_step_no_runtime_is_called() -> None:
    workload, trace = default_trace("znver3", 2)
    assert "GOMP_parallel" in assembly_text(workload, trace, example_target("znver3", 2))
    serial = edited(trace, {Parallel: lambda _: None})
    assert "GOMP_parallel" not in assembly_text(workload, serial, example_target("znver3", 2))


def test_the_same_input_gives_the_same_bytes() -> None:
    for name in TARGETS:
        workload, trace = default_trace(name, 2)
        first, again = (compile_kernel(workload, trace, example_target(name, 2)) for _ in range(2))
        assert first == again
