"""Spaces of expressions in no library: always there, legal, wide, parallel, and nameless."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tilewright.costmodel.counts.table import COUNTS
from tilewright.costmodel.programs import program_counts
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import LoopKind, loops
from tilewright.schedules.nest.verify_bounds import unproven_accesses
from tilewright.schedules.nest.verify_nest import verify
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Sketch, SpacePart
from tilewright.schedules.target import Cache, Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

ODD: dict[str, tuple[str, dict[str, tuple[str, tuple[int, ...]]], dict[str, int]]] = {
    "scaled product": (
        "C[i,j] += A[i,k] * B[k,j] * s[k]",
        {"A": ("f32", (33, 17)), "B": ("f32", (17, 31)), "s": ("f32", (17,))}, {},
    ),
    "three operands": (
        "C[i,j] += A[i,k] * B[k,j] * D[i,j]",
        {"A": ("f32", (13, 17)), "B": ("f32", (17, 31)), "D": ("f32", (13, 31))}, {},
    ),
    "triangular mask": (
        "C[i,j] += where(i >= k, A[i,k], 0) * B[k,j]",
        {"A": ("f32", (33, 33)), "B": ("f32", (33, 17))}, {},
    ),
    "strided convolution": (
        "Y[h,w,o] += X[2*h+r, 2*w+s, c] * W[r,s,c,o]",
        {"X": ("f32", (13, 15, 7)), "W": ("f32", (3, 3, 7, 17))}, {},
    ),
    "dilated convolution": (
        "Y[h,o] += X[h+2*r-2, c] * W[r,c,o]",
        {"X": ("f32", (31, 7)), "W": ("f32", (3, 7, 33))}, {},
    ),
    "rectangular convolution": (
        "Y[h,w,o] += X[h+r-2, w, c] * W[r,c,o]",
        {"X": ("f32", (13, 7, 5)), "W": ("f32", (5, 5, 33))}, {},
    ),
    "convolution of planes in steps": (
        "Y[o,h,w] += X[c,2*h+r-1,2*w+s-1] * W[o,c,r,s]",
        {"X": ("f32", (7, 13, 15)), "W": ("f32", (33, 7, 3, 3))}, {},
    ),
    "convolution of narrow planes": (
        "Y[o,h,w] += X[c,h+r-1,w+s-1] * W[o,c,r,s]",
        {"X": ("f32", (7, 7, 7)), "W": ("f32", (32, 7, 3, 3))}, {},
    ),
    "convolution in phases": (
        "Y[x,o] += where((x+1-r) % 3 == 0, X[(x+1-r)//3, c], 0) * W[r,c,o]",
        {"X": ("f32", (13, 7)), "W": ("f32", (4, 7, 33))}, {"x": 31},
    ),
    "each channel in phases": (
        "Y[x,y,o] += where((x-r) % 2 == 0, where((y+q) % 2 == 0, X[(x-r)//2,(y+q)//2,o], 0), 0)"
        " * W[r,q,o]",
        {"X": ("f32", (7, 6, 33)), "W": ("f32", (3, 5, 33))}, {"x": 13, "y": 17},
    ),
    "more phases than taps": (
        "Y[x,o] += where((x-r) % 5 == 0, X[(x-r)//5, c], 0) * W[r,c,o]",
        {"X": ("f32", (3, 7)), "W": ("f32", (3, 7, 17))}, {"x": 14},
    ),
    "transposed output": (
        "C[j,i] += A[i,k] * B[k,j]", {"A": ("f32", (33, 17)), "B": ("f32", (17, 31))}, {},
    ),
    "max-plus product": (
        "C[i,j] max= A[i,k] + B[k,j]", {"A": ("f32", (33, 17)), "B": ("f32", (17, 31))}, {},
    ),
    "outer product": ("C[i,j] = a[i] * b[j]", {"a": ("f32", (33,)), "b": ("f32", (65,))}, {}),
    "middle axis": ("C[i,j] += A[i,k,j]", {"A": ("f32", (7, 33, 31))}, {}),
    "one row": ("y[j] += x[k] * B[k,j]", {"x": ("f32", (33,)), "B": ("f32", (33, 65))}, {}),
    "dot product": ("c[z] += a[k] * b[k]", {"a": ("f32", (65,)), "b": ("f32", (65,))}, {"z": 1}),
    "six dimensions": (
        "C[a,b,c,d] += A[a,b,c,e,f,g] * B[e,f,g,d]",
        {"A": ("f32", (2, 3, 2, 3, 2, 3)), "B": ("f32", (3, 2, 3, 17))}, {},
    ),
    "two outputs": (
        "S[i] += A[i,j]; M[i] max= A[i,j]", {"A": ("f32", (17, 33))}, {},
    ),
    "chain of products": (
        "T[i,j] += A[i,k] * B[k,j]; C[i,l] += T[i,j] * D[j,l]",
        {"A": ("f32", (13, 17)), "B": ("f32", (17, 31)), "D": ("f32", (31, 33))}, {},
    ),
    "product with itself": ("C[i,j] += A[i,k] * A[j,k]", {"A": ("f32", (33, 17))}, {}),
    "grouped": (
        "C[i] += A[i//3, k] * B[i%3, k]",
        {"A": ("f32", (4, 17)), "B": ("f32", (3, 17))}, {"i": 12},
    ),
    "reads of one tensor in two ways": (
        "T[i,j] = A[i,j] * 2; C[i,j] += T[i,k] * T[k,j]", {"A": ("f32", (17, 17))}, {},
    ),
    "a line, elementwise": ("y[j] = x[j] + 1.0", {"x": ("f32", (1003,))}, {}),
    "one row of two axes": (
        "y[z,j] = x[z,j] * b[j]", {"x": ("f32", (1, 1003)), "b": ("f32", (1003,))}, {},
    ),
    "sum of squares of everything": ("s[z] += x[i] * x[i]", {"x": ("f32", (3001,))}, {"z": 1}),
    "greatest of everything": ("m[z] max= A[i,j]", {"A": ("f32", (67, 31))}, {"z": 1}),
    "norm of few rows": (
        "S[z] += A[z,i,j] * A[z,i,j]; Y[z] = S[z] * 0.5", {"A": ("f32", (1, 67, 64))}, {},
    ),
}  # fmt: skip
FEW_TASKS = {"dot product", "one row", "strided convolution", "grouped"}
"""Expressions so small that all columns of a default tile are one block, or one element."""


def workload(name: str) -> Workload:
    text, tensors, ranges = ODD[name]
    return from_notation(text, tensors, ranges)


def target(threads: int = 2, bits: int = 256, registers: int = 16) -> Target:
    return Target(
        triple="x86_64-unknown-linux-gnu", cpu="x86-64-v3", features=("avx", "avx2", "fma"),
        vector_bits=bits, vector_registers=registers,
        caches=(Cache(32768, 8), Cache(524288, 8), Cache(1 << 24, 16)), cores=2, threads=threads,
    )  # fmt: skip


def drawn(sketch: Sketch | SpacePart, count: int = 400, seed: int = 1) -> IntArray:
    sizes = [len(knob.values) for knob in sketch.knobs]
    return np.random.default_rng(seed).integers(0, sizes, (count, len(sizes)))


def drawn_with(sketch: Sketch, knob: str, count: int) -> IntArray:
    """The first feasible settings drawn in which `knob` is not at its first value."""
    at = [each.name for each in sketch.knobs].index(knob)
    settings = drawn(sketch, 20_000)
    found = settings[sketch.feasible(settings) & (settings[:, at] > 0)][:count]
    assert len(found)
    return found


@pytest.mark.parametrize("name", ODD)
def test_the_default_is_legal_vectorised_and_parallel(name: str) -> None:
    space = space_for(workload(name), target())
    assert space.sketches
    for sketch in space.sketches:
        assert sketch.feasible(np.asarray([sketch.default()]))[0]
        nest = lower(space.workload, sketch.trace(sketch.default()))
        verify(nest)
        assert not unproven_accesses(nest)
        kinds = {loop.kind for loop in loops(nest.body)}
        assert LoopKind.VECTORIZED in kinds
        assert LoopKind.PARALLEL in kinds or name in FEW_TASKS


@pytest.mark.parametrize("name", sorted(FEW_TASKS - {"dot product"}))
def test_where_the_default_has_one_task_other_settings_have_more(name: str) -> None:
    space = space_for(workload(name), target())
    found = set()
    for sketch in space.sketches:
        settings = drawn(sketch, 3000)
        for row in settings[sketch.feasible(settings)][:40]:
            nest = lower(space.workload, sketch.trace(tuple(int(i) for i in row)))
            found |= {loop.kind for loop in loops(nest.body)}
    assert LoopKind.PARALLEL in found


@pytest.mark.parametrize("name", ODD)
def test_feasible_settings_have_legal_traces(name: str) -> None:
    space = space_for(workload(name), target())
    for sketch in space.sketches:
        settings = drawn(sketch)
        settings = settings[sketch.feasible(settings)][:6]
        for row in settings:
            trace = sketch.trace(tuple(int(i) for i in row))
            assert Trace.from_json(json.loads(json.dumps(trace.to_json()))) == trace
            verify(lower(space.workload, trace))


@pytest.mark.parametrize("name", ODD)
def test_columns_are_all_there_and_finite(name: str) -> None:
    for threads in (1, 2):
        for sketch in space_for(workload(name), target(threads)).sketches:
            settings = drawn(sketch, 50)
            columns = program_counts(sketch, settings)
            assert columns.keys() == COUNTS.keys()
            for column in columns.values():
                assert np.shape(column) == (50,)
                assert np.isfinite(column).all()
            plan = sketch.parts[0].plan(sketch.split_settings(settings)[0])
            extents = plan.trips
            assert extents.shape == (50, len(plan.levels))
            assert (extents >= 1).all()


@pytest.mark.parametrize("name", ODD)
def test_no_rule_looks_at_names(name: str) -> None:
    text, tensors, ranges = ODD[name]
    letters = sorted({c for c in text if c.isalpha()} - set("wheremaxmin"))
    swaps = {c: f"name_{n}_{'zyx'[n % 3]}" for n, c in enumerate(letters)}
    renamed_text = "".join(swaps.get(c, c) for c in text)
    renamed = from_notation(
        renamed_text,
        {swaps.get(n, n): spec for n, spec in tensors.items()},
        {swaps.get(n, n): extent for n, extent in ranges.items()},
        name="matmul:M=1,N=1,K=1",
    )
    ours, theirs = space_for(workload(name), target()), space_for(renamed, target())
    assert [s.knobs for s in ours.sketches] == [s.knobs for s in theirs.sketches]
    for a, b in zip(ours.sketches, theirs.sketches, strict=True):
        assert a.default() == b.default()
        assert a.trace(a.default()) == b.trace(b.default())


def test_an_infeasible_setting_is_known_before_its_trace_is_written() -> None:
    (sketch, *_) = space_for(workload("scaled product"), target()).sketches
    settings = drawn(sketch, 2000)
    feasible = sketch.feasible(settings)
    assert feasible.any()
    assert not feasible.all()
    for row, whole in zip(settings[:300], feasible[:300], strict=True):
        if not whole:
            continue
        try:
            sketch.trace(tuple(int(i) for i in row))
        except ScheduleError as error:
            pytest.fail(f"{row} is feasible, and {error}")


def test_the_description_of_the_machine_shapes_the_space() -> None:
    product = workload("scaled product")
    narrow, wide = space_for(product, target(bits=128)), space_for(product, target(bits=512))
    few = space_for(product, target(registers=8))
    serial = space_for(product, target(threads=1))
    usual = space_for(product, target())
    tiny = replace(target(), caches=(Cache(1024, 2),))

    def values(space: object, knob: str) -> tuple[object, ...]:
        (*_, sketch) = space.sketches  # type: ignore[attr-defined]
        return next(k.values for k in sketch.knobs if k.name == knob)

    assert len(values(narrow, "tile_vectors")) > len(values(wide, "tile_vectors"))
    assert max(map(int, map(str, values(few, "tile_rows")))) < max(
        map(int, map(str, values(usual, "tile_rows")))
    )
    assert values(serial, "parallel") == (0,)
    assert len(values(usual, "parallel")) > 1
    settings = drawn(usual.sketches[0], 3000)
    small = space_for(product, tiny).sketches[0].feasible(settings)
    assert small.sum() < usual.sketches[0].feasible(settings).sum()


def test_tiles_need_not_divide() -> None:
    (*_, sketch) = space_for(workload("scaled product"), target(1)).sketches
    rows = next(k.values for k in sketch.knobs if k.name == "tile_rows")
    assert any(33 % int(r) for r in rows)


def test_one_thread_may_do_it_all() -> None:
    shapes = {"A": ("f32", (40, 40)), "B": ("f32", (40, 40))}
    product = from_notation("C[i,j] += A[i,k] * B[k,j]", shapes, {})
    sketch = space_for(product, target()).sketches[0]
    at = [knob.name for knob in sketch.knobs].index("parallel")
    settings = drawn(sketch, 20_000)
    settings = settings[sketch.feasible(settings)]
    serial = settings[settings[:, at] == 0]
    assert len(serial)
    for setting in serial[:5]:
        nest = lower(product, sketch.trace(tuple(int(i) for i in setting)))
        assert all(loop.kind is not LoopKind.PARALLEL for loop in loops(nest.body))
    found = program_counts(sketch, settings)
    shared = (settings[:, at] > 0) & (found["tasks"] > 1)
    assert np.array_equal(found["regions"] > 0, shared)
