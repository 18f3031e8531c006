"""Inner products: lanes along the reduction, a large operand read in place and once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.counts.compare import footprint
from tests.support.schedules.spaces import SMALL, target
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.costmodel.counts.counting import program_counts
from tilewright.schedules import operators
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import PrefetchHint, leaves
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.inner_product import roles
from tilewright.schedules.space import Sketch
from tilewright.schedules.target import Cache, Target
from tilewright.schedules.workload.workload import Workload

PRODUCTS: dict[str, Workload] = {
    "weights by output": notation("C[i,j] += A[i,k] * B[j,k]", A="f32[6,33]", B="f32[12,33]"),
    "prime": notation("C[i,j] += A[i,k] * B[j,k]", A="f32[3,37]", B="f32[13,37]"),
    "few columns": notation("C[i,j] += A[i,k] * B[k,j]", A="f32[52,32]", B="f32[32,2]"),
    "permuted result": notation("C[j,i] += A[i,k] * B[j,k]", A="f32[2,32]", B="f32[12,32]"),
    "batched": notation("C[b,i,j] += A[b,i,k] * B[b,j,k]", A="f32[2,2,35]", B="f32[2,6,35]"),
    "two reductions": notation(
        "C[i,j] += A[i,r,k] * B[j,r,k]", A="f32[2,3,33]", B="f32[8,3,33]"
    ),
    "layer": notation(
        "C[i,j] += A[i,k] * B[j,k]; Y[i,j] = max(C[i,j] + b[j], 0.0)",
        A="f32[4,33]", B="f32[12,33]", b="f32[12]",
    ),
    "few channels made": notation(
        "Y[h,w,o] += X[h+r-1,w+s-1,c] * K[r,s,c,o]", {"h": 5, "w": 6}, X="f32[5,6,16]",
        K="f32[3,3,16,3]",
    ),
    "a step": notation(
        "Y[h,w,o] += X[2*h+r,2*w+s,c] * K[o,r,s,c]", X="f32[9,13,16]", K="f32[2,3,3,16]"
    ),
    "phases": operators.conv2d_transpose_nhwc(
        N=1, H=8, W=9, CI=16, CO=2, K=4, stride=2, pad=1
    ),
    "a vector": notation("C[i] += A[i,k] * B[k]", A="f32[24,33]", B="f32[33]"),
    "vectors of batches": notation(
        "C[b,i] += A[b,i,k] * B[b,k]", A="f32[3,13,32]", B="f32[3,32]"
    ),
    "a vector of two reductions": notation(
        "C[i] += A[i,r,k] * B[r,k]", A="f32[6,2,37]", B="f32[2,37]"
    ),
    "greatest": notation("C[i,j] max= A[i,k] + B[j,k]", A="f32[2,33]", B="f32[8,33]"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reductions short enough for the interpreter."""
    monkeypatch.setattr(roles, "SHORT_AXIS", 2)
    monkeypatch.setattr(roles, "stays_near", lambda *_: False)


def inner_products(workload: Workload, machine: Target | None = None) -> list[Sketch]:
    return [
        s for s in space_for(workload, machine or target()).sketches if "inner_product" in s.name
    ]


def feasible_settings(sketch: Sketch) -> IntArray:
    grid = np.indices([len(knob.values) for knob in sketch.knobs])
    settings = grid.reshape(len(sketch.knobs), -1).T
    return settings[sketch.feasible(settings)]


def chosen(sketch: Sketch, **values: int) -> tuple[int, ...]:
    """The setting with these values, and the first of every other knob."""
    return tuple(k.values.index(values.get(k.name, k.values[0])) for k in sketch.knobs)


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_setting_is_legal_and_right(name: str) -> None:
    workload = PRODUCTS[name]
    (sketch,) = inner_products(workload)
    settings = feasible_settings(sketch)
    assert len(settings)
    assert sketch.feasible(np.asarray([sketch.default()]))[0]
    for setting in settings[:: max(len(settings) // 6, 1)]:
        check_meaning(workload, lower(workload, sketch.trace(tuple(setting))))


def test_offered_only_where_a_large_operand_is_used_little_along_contiguous_rows() -> None:
    for text, shapes in (
        ("C[i,j] += A[i,k] * B[k,j]", {"A": "f32[6,33]", "B": "f32[33,90]"}),
        ("C[i,j] += A[i,k] * B[j,k]", {"A": "f32[70,33]", "B": "f32[90,33]"}),
        ("C[i,j] += A[i,k] * B[j,k]", {"A": "f32[6,5]", "B": "f32[90,5]"}),
        ("C[i] += A[i,k]", {"A": "f32[90,33]"}),
        ("C[i,j] += A[i,2*k] * B[j,2*k]", {"A": "f32[6,66]", "B": "f32[90,66]"}),
    ):
        assert not inner_products(notation(text, {"k": 33} if "2*k" in text else None, **shapes))


def test_tiles_of_phases_are_whole_periods() -> None:
    (sketch,) = inner_products(PRODUCTS["phases"])
    columns = next(knob.values for knob in sketch.knobs if knob.name == "tile_columns")
    assert columns == (2, 6)  # of 18, in pairs
    (sketch,) = inner_products(PRODUCTS["few channels made"])
    assert next(knob.values for knob in sketch.knobs if knob.name == "tile_columns") == (1, 2, 3, 6)


def test_phases_with_fewer_taps_are_left() -> None:
    """Their sums would be computed in full and thrown away."""
    odd = operators.conv2d_transpose_nhwc(N=1, H=8, W=9, CI=16, CO=2, K=3, stride=2, pad=1)
    assert not inner_products(odd)


def test_padding_along_the_lanes_is_not_taken() -> None:
    """But the sum over the taps alone has none."""
    text = "C[i,j] += A[i,k-1] * B[j,k]"
    found = inner_products(notation(text, A="f32[6,33]", B="f32[90,34]"))
    assert {sketch.name for sketch in found} == {"gather+inner_product"}


def test_a_far_operand_is_asked_for_a_tile_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = notation("C[b,i,j] += A[b,i,k] * B[b,j,k]", A="f32[2,4,37]", B="f32[2,12,37]")
    monkeypatch.setattr(roles, "PAGE_BYTES", 64)
    (sketch,) = inner_products(workload, SMALL)
    (place,) = [n for n, knob in enumerate(sketch.knobs) if knob.name == "prefetch"]
    assert sketch.knobs[place].values == (0, 1)
    assert all(
        knob.values[-1] == 0
        for made in inner_products(workload)
        for knob in made.knobs
        if knob.name == "prefetch"
    )
    settings = feasible_settings(sketch)
    settings = settings[settings[:, place] > 0]
    for setting in settings[::3]:
        nest = lower(workload, sketch.trace(tuple(setting)))
        assert any(isinstance(leaf, PrefetchHint) and leaf.far for leaf in leaves(nest.body))
        check_meaning(workload, nest)
    without = settings.copy()
    without[:, place] = 0
    late, unasked = (program_counts(sketch, s)["exposed_lines"] for s in (settings, without))
    rows = next(n for n, knob in enumerate(sketch.knobs) if knob.name == "tile_rows")
    at_once = settings[:, rows] == settings[:, rows].max()
    assert (late < unasked)[at_once].all()


def test_wider_tiles_read_less() -> None:
    (sketch,) = inner_products(PRODUCTS["weights by output"])

    def loads(rows: int, columns: int) -> float:
        setting = chosen(sketch, tile_rows=rows, tile_columns=columns)
        return float(program_counts(sketch, np.asarray([setting]))["vector_loads"][0])

    assert loads(3, 4) < loads(3, 2) < loads(1, 1)


BLOCKS: dict[str, Workload] = {
    "weights by output": notation("C[i,j] += A[i,k] * B[j,k]", A="f32[4,64]", B="f32[12,64]"),
    "permuted result": notation("C[j,i] += A[i,k] * B[j,k]", A="f32[2,128]", B="f32[12,128]"),
    "batched": notation("C[b,i,j] += A[b,i,k] * B[b,j,k]", A="f32[2,2,64]", B="f32[2,8,64]"),
    "batch inside": notation("C[i,j,b] += A[i,b,k] * B[j,b,k]", A="f32[2,3,64]", B="f32[8,3,64]"),
    "shared weights": notation("C[b,i,j] += A[i,k] * B[b,j,k]", A="f32[2,64]", B="f32[2,8,64]"),
    "two reductions": notation(
        "C[i,j] += A[i,r,k] * B[j,r,k]", A="f32[2,3,64]", B="f32[8,3,64]"
    ),
    "layer": notation(
        "C[i,j] += A[i,k] * B[j,k]; Y[i,j] = max(C[i,j] + b[j], 0.0)",
        A="f32[4,64]", B="f32[12,64]", b="f32[12]",
    ),
    "scaled": notation(
        "C[i,j] += A[i,k] * D[k] * B[j,k]", A="f32[4,64]", B="f32[12,64]", D="f32[64]"
    ),
    "greatest": notation("C[i,j] max= A[i,k] + B[j,k]", A="f32[2,64]", B="f32[8,64]"),
    "doubles": notation("C[i,j] += A[i,k] * B[j,k]", A="f64[2,64]", B="f64[8,64]"),
    "few columns": notation("C[i,j] += A[i,k] * B[k,j]", A="f32[12,64]", B="f32[64,4]"),
}  # fmt: skip


NARROW = replace(SMALL, caches=(Cache(768, 2), *SMALL.caches[1:]))
"""A machine whose first cache holds half of four rows of 64 numbers, beside others."""

GOLDEN = """\
kernel(i0: f32[4, 64], i1: f32[12, 64]) -> s0: f32[4, 12]
alloc s0.packed0: f32[8, 4, 8]                          # workspace
for s0.packed0.0 in range(4):
  for s0.packed0.1o in range(8):
    for s0.packed0.1i in range(8):                      # vectorized
      s0.packed0[s0.packed0.1o, s0.packed0.0, s0.packed0.1i]
            = i0[s0.packed0.0, s0.packed0.1i + 8*s0.packed0.1o]
for s0.d1.rfo in range(3):                              # parallel
  alloc s0.wide: f32[4, 4, 8]                           # workspace
  for s0.r0oo in range(2):                              # reduce
    for s0.wide.1o in range(2):
      for s0.wide.0o in range(2):
        alloc s0.wide.acc: f32[2, 2, 8]                 # registers
        for s0.wide.1i.init in range(2):                # unrolled
          for s0.wide.0i.init in range(2):              # unrolled
            for s0.wide.2.init in range(8):             # vectorized
              s0.wide.acc[s0.wide.1i.init, s0.wide.0i.init, s0.wide.2.init] = 0.0
        for s0.r0oi in range(4):                        # reduce
          prefetch i1[2*((2*s0.d1.rfo + s0.wide.1o + 1)%6), 8*s0.r0oi + 32*s0.r0oo]  # far ahead
          prefetch i1[2*((2*s0.d1.rfo + s0.wide.1o + 1)%6) + 1, 8*s0.r0oi + 32*s0.r0oo]  # far ahead
          for s0.wide.1i in range(2):                   # unrolled
            for s0.wide.0i in range(2):                 # unrolled
              for s0.wide.2 in range(8):                # vectorized
                s0.wide.acc[s0.wide.1i, s0.wide.0i, s0.wide.2]
                      += s0.packed0[s0.r0oi + 4*s0.r0oo, s0.wide.0i + 2*s0.wide.0o, s0.wide.2]
                      * i1[4*s0.d1.rfo + s0.wide.1i + 2*s0.wide.1o, 8*s0.r0oi + 32*s0.r0oo + s0.wide.2]
        for s0.wide.1i.out in range(2):                 # unrolled
          for s0.wide.0i.out in range(2):               # unrolled
            for s0.wide.2.out in range(8):              # vectorized
              s0.wide[s0.wide.1i.out + 2*s0.wide.1o, s0.wide.0i.out + 2*s0.wide.0o, s0.wide.2.out]
                    += s0.wide.acc[s0.wide.1i.out, s0.wide.0i.out, s0.wide.2.out]  # first at 32*s0.r0oo == 0
  for s0.d1.rfio in range(2):
    for s0.d0.rfo in range(2):
      alloc s0.total: f32[2, 2]                         # registers
      for s0.d1.rfii.init in range(2):                  # unrolled
        for s0.d0.rfi.init in range(2):                 # unrolled
          s0.total[s0.d0.rfi.init, s0.d1.rfii.init] = 0.0
      for s0.d1.rfii in range(2):                       # unrolled
        for s0.d0.rfi in range(2):                      # unrolled
          for s0.r0i.rf in range(8):                    # vectorized, reduce
            s0.total[s0.d0.rfi, s0.d1.rfii]
                  += s0.wide[s0.d1.rfii + 2*s0.d1.rfio, s0.d0.rfi + 2*s0.d0.rfo, s0.r0i.rf]
      for s0.d1.rfii.out in range(2):                   # unrolled
        for s0.d0.rfi.out in range(2):                  # unrolled
          s0[s0.d0.rfi.out + 2*s0.d0.rfo, s0.d1.rfii.out + 2*s0.d1.rfio + 4*s0.d1.rfo]
                = s0.total[s0.d0.rfi.out, s0.d1.rfii.out]
"""  # noqa: E501


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "MOST_BLOCK_COLUMNS", 4)
    monkeypatch.setattr(roles, "PAGE_BYTES", 64)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.usefixtures("short_blocks")
def test_blocks_of_the_reduction_compute_the_same(name: str) -> None:
    workload = BLOCKS[name]
    sketches = inner_products(workload, SMALL)
    assert sketches
    for sketch in sketches:
        settings = feasible_settings(sketch)
        (place,) = [
            n for n, k in enumerate(sketch.knobs) if k.name.split(".")[-1] == "reduction_blocks"
        ]
        settings = settings[settings[:, place] > 0]
        assert {*settings[:, place + 1]} == ({0} if name == "few columns" else {0, 1})
        for setting in settings[:: max(len(settings) // 12, 1)]:
            check_meaning(workload, lower(workload, sketch.trace(tuple(setting))))


@pytest.mark.usefixtures("short_blocks")
def test_a_block_of_tiles_goes_through_a_part_of_the_reduction() -> None:
    workload = BLOCKS["weights by output"]
    (sketch,) = inner_products(workload, NARROW)
    setting = chosen(
        sketch, tile_rows=2, tile_columns=2, reduction_blocks=2, pack_rows=1, prefetch=1, parallel=1
    )
    assert to_text(lower(workload, sketch.trace(setting))) == GOLDEN.rstrip()


@pytest.mark.usefixtures("short_blocks")
def test_blocks_only_where_the_first_cache_does_not_hold_the_rows() -> None:
    def offered(workload: Workload, machine: Target) -> tuple[int, ...]:
        (sketch,) = inner_products(workload, machine)
        return next(knob.values for knob in sketch.knobs if knob.name == "reduction_blocks")

    assert offered(BLOCKS["weights by output"], NARROW) == (1, 2, 4, 8)
    assert offered(BLOCKS["weights by output"], SMALL) == (1, 4, 8)  # nor half of them
    assert offered(BLOCKS["weights by output"], target()) == (1,)
    assert offered(PRODUCTS["weights by output"], SMALL) == (1,)  # no whole vectors


@pytest.mark.usefixtures("short_blocks")
def test_sums_that_wait_and_rows_that_stay_are_counted() -> None:
    workload = BLOCKS["weights by output"]
    (sketch,) = inner_products(workload, SMALL)
    tile = {"tile_rows": 2, "tile_columns": 2}
    settings = [chosen(sketch, **tile), chosen(sketch, **tile, reduction_blocks=4, pack_rows=1)]
    found = program_counts(sketch, np.asarray(settings))
    # Beside four parts, a loop over each two tiles of rows adds up their lanes.
    assert found["inner_entries"][1] == 4.5 * found["inner_entries"][0]
    steps = found["inner_entries"] * found["inner_trips"]
    assert steps[1] == pytest.approx(steps[0] + found["inner_entries"][0])
    assert found["vector_stores"][1] > found["vector_stores"][0]
    assert found["packed_bytes"].tolist() == [0, 4 * 64 * 4]
    points = sketch.parts[0].plan(np.asarray(settings)).trips.prod(axis=1)
    assert points[0] == points[1]
    once, blocks = (footprint(sketch.parts[0].plan(np.asarray([x])), workload) for x in settings)
    assert blocks == once + 4 * 4 * 8 * 4  # vectors of sums of a block's columns and all rows


@pytest.mark.usefixtures("short_blocks")
def test_the_default_takes_the_longest_part_that_stays_in_the_first_cache() -> None:
    (sketch,) = inner_products(BLOCKS["weights by output"], SMALL)
    names = [knob.name for knob in sketch.knobs]
    at = names.index("reduction_blocks")
    assert sketch.knobs[at].values[sketch.default()[at]] == 4  # of 1 KB, beside 512 bytes


@pytest.mark.usefixtures("short_blocks")
def test_prefetches_that_tiles_of_rows_give_again_are_counted_once() -> None:
    """As prefetches: not as lines that are late as well."""
    (sketch,) = inner_products(BLOCKS["weights by output"], SMALL)
    settings = [chosen(sketch, tile_rows=rows, tile_columns=2, prefetch=1) for rows in (4, 2, 1)]
    found = program_counts(sketch, np.asarray(settings))
    once, twice, often = found["prefetches"]
    assert 0 < once < twice < often
    assert not found["exposed_lines"].any()
