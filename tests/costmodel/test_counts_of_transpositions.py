"""Blocks that are transposed in registers, with one column left at the end of an axis."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.counts.program import program
from benchmarks.counts.recount import recount
from tests.support.paths import example_target
from tilewright.costmodel.counts.counting import counts
from tilewright.schedules import parse_workload
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.transpose.copies import TransposeSketch

EXACT = ("live_registers", "packed_bytes", "strided_packed_bytes", "panel_bytes", "vector_stores")


@pytest.mark.parametrize(("cpu", "i", "j"), [("neoverse-n1", 13, 23), ("x86-64-v3", 9, 17)])
def test_registers_and_single_columns_are_counted(cpu: str, i: int, j: int) -> None:
    """A block holds as many registers as it is wide, and one that is read from memory; a column of
    its own is read from one register, lane by lane, and collected element by element."""
    workload = parse_workload(expr="Y[j,i] = X[i,j] * 2", tensors=[f"X=f32[{i},{j}]"]).normalised()
    space = space_for(workload, example_target(cpu, 1))
    sketch = next(sketch for sketch in space.sketches if sketch.name == "transpose")
    sizes = [len(knob.values) for knob in sketch.knobs]
    settings = np.indices(sizes).reshape(len(sizes), -1).T
    said = counts(sketch.parts[0], settings)
    assert said["strided_packed_bytes"].any() == (cpu == "neoverse-n1")
    for n, setting in enumerate(settings.tolist()):
        nest = lower(workload, sketch.trace(setting))
        found = recount(program(nest, frozenset({"s0"}), nest.body))
        for name in EXACT:
            assert said[name][n] == found[name], (name, setting)


@pytest.mark.parametrize("cpu", ["neoverse-n1", "x86-64-v3", "znver5"])
def test_blocks_of_interleaved_planes_are_counted(cpu: str) -> None:
    text = "Y[c,h,w] = X[c*4+(h%2)*2+w%2,h//2,w//2]"
    workload = parse_workload(expr=text, tensors=["X=f32[8,5,34]"]).normalised()
    sketches = space_for(workload, example_target(cpu, 1)).sketches
    sketch = next(sketch for sketch in sketches if sketch.name == "transpose")
    sizes = [len(knob.values) for knob in sketch.knobs]
    settings = np.indices(sizes).reshape(len(sizes), -1).T
    said = counts(sketch.parts[0], settings)
    for n, setting in enumerate(settings.tolist()):
        nest = lower(workload, sketch.trace(setting))
        found = recount(program(nest, frozenset({"s0"}), nest.body))
        for name in EXACT:
            assert said[name][n] == found[name], (name, setting)


def test_nontemporal_stores_fill_whole_lines() -> None:
    """A vector of AVX2 is half a line: one of a row must be collected with the next one."""
    workload = parse_workload(expr="Y[j,i] = X[i,j]", tensors=["X=f32[4096,1024]"]).normalised()
    for cpu, alone in (("x86-64-v3", False), ("skylake-avx512", True)):
        space = space_for(workload, example_target(cpu, 1))
        sketch = next(sketch for sketch in space.sketches if sketch.name == "transpose")
        (part,) = sketch.parts
        assert isinstance(part, TransposeSketch)
        names = [knob.name for knob in part.knobs]
        wide = part.feasible_of({"nontemporal_stores": (1,)})
        columns = part.knobs[names.index("tile_columns")].values
        found = {
            (int(row[names.index("buffer_output")]), columns[row[names.index("tile_columns")]])
            for row in wide
        }
        assert {(1, 2), (1, 4)} <= found
        assert ((0, 1) in found) is alone
        assert ((1, 1) in found) is alone
