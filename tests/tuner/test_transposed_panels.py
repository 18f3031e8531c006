"""Column operands stored transposed: panels filled by transposing blocks of registers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.support.paths import example_target
from tests.support.schedule_fuzz.check import Pair, check_pair
from tests.support.schedules.spaces import target
from tests.support.schedules.workloads import notation
from tilewright.costmodel.prior import Prior
from tilewright.schedules.primitives import CacheRead
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.sketches.tile.sketch import TileSketch
from tilewright.schedules.space import ScheduleSpace
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.emit.kernel import assembly_text

CASES: dict[str, Workload] = {
    "nt": notation("C[i,j] += A[i,k] * B[j,k]", A="f32[13,37]", B="f32[41,37]"),
    "whole blocks": notation("C[i,j] += A[i,k] * B[j,k]", A="f32[12,64]", B="f32[64,64]"),
    "doubles": notation("C[i,j] += A[i,k] * B[j,k]", A="f64[7,19]", B="f64[21,19]"),
    "short reduction": notation("C[i,j] += A[i,k] * B[j,k]", A="f32[9,5]", B="f32[33,5]"),
    "heads": notation("C[h,i,j] += Q[i,h,k] * V[j,h,k]", Q="f32[9,3,20]", V="f32[35,3,20]"),
    "batch left out": notation("C[b,i,j] += A[b,k,i] * B[j,k]", A="f32[2,17,11]", B="f32[39,17]"),
    "two contracted axes": notation(
        "C[i,j] += A[i,k,l] * B[j,l,k]", A="f32[7,5,18]", B="f32[37,18,5]"
    ),
    "square of a matrix": notation("C[i,j] += A[i,k] * A[j,k]", A="f32[37,23]"),
    "square the other way": notation("C[i,j] += A[k,i] * A[k,j]", A="f32[23,37]"),
    "batches of squares": notation("C[b,i,j] += A[b,i,k] * A[b,j,k]", A="f32[3,21,18]"),
    "rectangle of a square": notation(
        "C[i,j] += A[i,k] * A[j+5,k]", {"i": 9, "j": 33}, A="f32[38,20]"
    ),
    "square with a bias": notation(
        "D[i,j] += A[i,k] * A[j,k]; C[i,j] = max(D[i,j] + b[j], 0)", A="f32[37,23]", b="f32[37]"
    ),
    "another dimension inside": notation(
        "C[b,i,j] += A[b,i,k] * B[j,k,b]", A="f32[17,9,11]", B="f32[35,11,17]"
    ),
    "weights outside": notation("Y[x,o] += X[x+r,c] * W[o,r,c]", X="f32[15,19]", W="f32[33,3,19]"),
    "integers": notation("C[i,j] += A[i,k] * B[j,k]", A="i32[6,18]", B="i32[20,18]"),
}


def tile_of(space: ScheduleSpace) -> TileSketch:
    (part,) = next(s for s in space.sketches if s.name == "tile").parts
    assert isinstance(part, TileSketch)
    return part


def packing(sketch: TileSketch, count: int, seed: int = 3) -> list[Trace]:
    """Traces of some feasible settings that pack columns."""
    sizes = [len(knob.values) for knob in sketch.knobs]
    names = [knob.name for knob in sketch.knobs]
    settings = np.random.default_rng(seed).integers(0, sizes, (4000, len(sizes)))
    settings[:, names.index("pack_columns")] = 1
    good = settings[sketch.feasible(settings)][:count]
    program = ProgramSketch(sketch.workload, (), (sketch,))
    return [program.trace(tuple(int(x) for x in row)) for row in good]


@pytest.mark.parametrize("bits", [256, 512])
@pytest.mark.parametrize("name", CASES)
def test_products_with_turned_panels_are_right(name: str, bits: int) -> None:
    workload = CASES[name]
    sketch = tile_of(space_for(workload, target(2, bits, 32 if bits == 512 else 16)))
    traces = packing(sketch, 5)
    assert traces
    for trace in traces:
        check_pair(Pair(name, workload, trace, 2, bits))


def test_panels_are_turned_where_the_tensor_is_contiguous_along_another_axis() -> None:
    turned = tile_of(space_for(CASES["nt"], target()))
    assert [turned.is_transposed(read) for read in turned.packable] == [True]
    plain = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[13,37]", B="f32[37,41]")
    straight = tile_of(space_for(plain, target()))
    assert [straight.is_transposed(read) for read in straight.packable] == [False]
    blocks = [s for s in packing(turned, 1)[0].steps if isinstance(s, CacheRead) and s.register]
    assert [block.name for block in blocks] == ["s0.pack0.block"]


def test_no_element_of_a_panel_is_moved_alone() -> None:
    chip = example_target("znver5")
    workload = notation("C[i,j] += A[i,k] * B[j,k]", A="f32[64,64]", B="f32[64,64]")
    space = space_for(workload, chip)
    text = assembly_text(workload, space.trace(space.default()), chip)
    used = Counter(line.split()[0] for line in text.splitlines() if line.startswith("\tv"))
    assert sum(n for name, n in used.items() if "unpck" in name or "shuf" in name) >= 64
    assert not [name for name in used if "gather" in name or "insertps" in name]


def test_the_prior_counts_turning_as_copying_and_gathering_as_dearer() -> None:
    share = {}
    for name, text, k in (
        ("turned", "C[i,j] += A[i,k] * B[j,k]", 512),
        ("copied", "C[i,j] += A[i,k] * B[k,j]", 512),
        ("gathered", "C[i,j] += A[i,k] * B[j,k]", 3),
    ):
        shape = f"f32[{k},512]" if name == "copied" else f"f32[512,{k}]"
        space = space_for(notation(text, A=f"f32[512,{k}]", B=shape), target())
        setting = np.asarray([tile_of(space).default()])
        prior = Prior(space)
        found = prior.analyse(0, setting).columns
        share[name] = float((found["strided_packed_bytes"] / found["packed_bytes"])[0])
    assert share["copied"] == share["turned"] == 0.0 < share["gathered"]
