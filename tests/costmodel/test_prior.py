"""Footprints against counting, and the prior against what everybody knows about loops."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.support.paths import example_target
from tests.support.schedules.workloads import notation
from tests.support.synthetic_sketch import synthetic_space, synthetic_target
from tilewright.costmodel import features
from tilewright.costmodel.counts.table import with_zeros
from tilewright.costmodel.features import FEATURES, Featuriser
from tilewright.costmodel.footprint import Traffic, cache_traffic, touched
from tilewright.costmodel.machine import NOMINAL_CLOCK_HZ, compute_dtype, machine_for
from tilewright.costmodel.prior import CHAIN_NORM, Prior, combine
from tilewright.schedules.algebra.functions import UnaryOp
from tilewright.schedules.algebra.scalar_function import FUNCTION_OPS
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.dtypes import DType
from tilewright.schedules.hardware import OPS_IN_FLIGHT, USABLE_SHARE
from tilewright.schedules.plan import Access, Level, Outline, Plan, axes_of
from tilewright.schedules.sketches.program import space_for
from tilewright.schedules.target import Probes
from tilewright.schedules.workload.tensors import Tensor
from tilewright.tuner.codegen.mathlib import math_function
from tilewright.tuner.search.setting_grid import setting_grids

A = Access("A", 4, ((1, 0, 0), (0, 0, 1)))
B = Access("B", 4, ((0, 0, 1), (0, 1, 0)))
C = Access("C", 4, ((1, 0, 0), (0, 1, 0)), is_output=True)
LOOPS = (1, 2, 0, 1, 0, 2, 0, 1)


def nest(extents: list[int], axes: tuple[int, ...], accesses: list[Access], dense: int = 0) -> Plan:
    """Loops of so many trips, outer to inner, each along one of the axes."""
    sizes = [1] * 3
    levels = []
    for extent, axis in zip(reversed(extents), reversed(axes), strict=True):
        levels.append(Level(axis, sizes[axis]))
        sizes[axis] *= extent
    outline = Outline(axes_of(zip("mnk", sizes, strict=True)), tuple(accesses))
    return Plan(outline, tuple(reversed(levels)), 1, dense)


def counted_elements(access: Access, extents: list[int], axes: tuple[int, ...], level: int) -> int:
    """Distinct elements touched by the loops from `level` inward, by visiting them."""
    inner = range(level, len(extents))
    scale = {l: int(np.prod([extents[m] for m in inner if m > l and axes[m] == axes[l]] or [1]))
             for l in inner}  # fmt: skip
    seen = set()
    for point in product(*(range(extents[l]) for l in inner)):
        place = [0, 0, 0]
        for l, value in zip(inner, point, strict=True):
            place[axes[l]] += value * scale[l]
        seen.add(tuple(sum(s * p for s, p in zip(row, place, strict=True))
                       for row in access.strides))  # fmt: skip
    return len(seen)


@pytest.mark.parametrize("access", [A, B, C, Access("I", 4, ((2, 0, 1), (0, 1, 0)))])
@pytest.mark.parametrize("level", [0, 2, 4, 6, 8])
def test_footprint_is_the_bounding_box_of_what_is_touched(access: Access, level: int) -> None:
    extents = [2, 2, 3, 2, 2, 3, 2, 2]
    plan = nest(extents[level:], LOOPS[level:], [access])
    traffic = cache_traffic(plan, {}, [1e9], line_bytes=4)
    touched = 4 * counted_elements(access, extents, LOOPS, level)
    box = float(traffic.footprint[0])
    assert box >= touched
    if access.buffer != "I":  # a strided halo has gaps, a plain matrix has none
        assert box == touched


def test_values_that_each_iteration_has_anew_are_in_one_place() -> None:
    """Four times four of them for each of three: a cache that holds those of one holds all."""
    own, apart = (
        cache_traffic(nest([3, 4, 4], (0, 0, 2), [access]), {}, [128.0, 1e9], line_bytes=4)
        for access in (replace(A, private_levels=1), A)
    )
    assert [float(np.ravel(found.footprint)[0]) for found in (own, apart)] == [64, 192]
    assert (own.moved[0, 0, 0], apart.moved[0, 0, 0]) == (0, 192)


def test_gemm_traffic_is_the_textbook_one() -> None:
    """1024 cubed, blocks 1024 x 512 x 128 (n, k, m), tile 8 x 64: MiB moved into L1, L2, L3.

    All 12 MiB fit L3, so a call finds them there.
    """
    extents = [1, 2, 8, 16, 16, 512, 8, 64]
    once = Access("C", 4, C.strides)
    caches = [48 << 10, 1 << 20, 32 << 20]
    traffic = cache_traffic(nest(extents, LOOPS, [A, B, once]), {}, caches, line_bytes=64)
    mib = traffic.moved[:, :, 0] / 2**20
    assert mib.tolist() == [[64, 512, 8], [4, 32, 8], [0, 0, 0]]


def test_a_loop_of_one_trip_does_not_end_reuse() -> None:
    """B is walked by j; a j loop of one trip outside the m loop must not bring it in again."""
    extents = [4, 1, 8, 8]
    axes = (0, 1, 1, 2)  # m, n of one trip, n, k
    holds_b = [900.0, 1e9]  # the first cache does not hold all of A with it
    traffic = cache_traffic(nest(extents, axes, [A, B]), {}, holds_b, line_bytes=64)
    lost = float(traffic.footprint[0]) / (900.0 * USABLE_SHARE) - 1.0
    assert 0.0 < lost < 1.0
    once = 8 * 64  # eight rows of a line each
    assert traffic.moved[0, 1, 0] == pytest.approx(once * lost, rel=1e-5)


def test_a_cache_loses_what_does_not_fit_little_by_little() -> None:
    def moved(load: float, *behind: float) -> float:
        nest_of_a = nest([4, 4, 4], (0, 1, 2), [A])
        footprint = float(cache_traffic(nest_of_a, {}, [1.0], line_bytes=4).footprint[0])
        caches = [footprint / (USABLE_SHARE * load), *behind]
        return float(cache_traffic(nest_of_a, {}, caches, line_bytes=4).moved[0, 0, 0])

    found = [moved(load, 1e9) for load in (0.9, 1.0, 1.5, 2.0, 3.0)]
    assert found[:2] == [0.0, 0.0]
    assert 0.0 < found[2] == pytest.approx(found[3] / 2)
    assert found[3] == found[4]
    last = [moved(load) for load in (1.0, (1 + 1 / USABLE_SHARE) / 2, 1 / USABLE_SHARE, 2.0)]
    assert last[0] == 0.0
    assert 0.0 < last[1] == pytest.approx(last[2] / 2, rel=1e-3)
    assert last[2] == pytest.approx(last[3], rel=1e-5)


def test_threads_share_what_they_divide_among_their_caches() -> None:
    """Rows of A and C belong to one thread each; all threads read the whole of B."""
    plan = nest([4, 4, 4], (0, 1, 2), [A, B, C])
    plan = replace(plan, levels=(replace(plan.levels[0], is_parallel=True), *plan.levels[1:]))
    one, two, shared = (
        cache_traffic(
            plan, {}, [120.0, 1e9], line_bytes=4, all_cache_bytes=[all_bytes, 1e9], threads=threads
        )
        .moved[0]
        .sum()
        for threads, all_bytes in ((1, 120.0), (2, 120.0), (2, 400.0))
    )
    assert one > two > 0.0  # 192 bytes, of which a thread of two touches 128
    assert shared == 0.0


def test_written_bytes_count_twice_in_memory_and_once_between_caches() -> None:
    """Caches have a way for each direction; what comes from memory goes back the same way."""
    read = Access("C", 4, C.strides)
    extents = [4, 4, 4]
    plans = (nest(extents, (0, 1, 2), [x]) for x in (read, C))
    one, two = (
        cache_traffic(plan, {}, [80.0, 80.0], line_bytes=64).moved[:, 0, 0] for plan in plans
    )
    assert two.tolist() == [one[0], 2 * one[1]]


def test_streamed_bytes_cross_no_cache() -> None:
    """Memory takes them once; twice where the last cache would have held them."""
    plan = nest([4, 4, 4], (0, 1, 2), [A, C])
    small, large = (
        cache_traffic(plan, {}, [80.0, last], line_bytes=64, streamed_bytes=64.0).moved[:, 1, 0]
        for last in (80.0, 1e9)
    )
    assert small.tolist() == [0, 64]
    assert large.tolist() == [0, 128]


def test_streamed_bytes_of_several_outputs_are_the_same_bytes() -> None:
    plan = nest([4, 4, 4], (0, 1, 2), [A, C, replace(C, buffer="D")])
    moved = cache_traffic(plan, {}, [80.0, 80.0], line_bytes=64, streamed_bytes=64.0).moved
    assert moved[1, 1:, 0].sum() == 64


def test_short_rows_far_apart_come_slower() -> None:
    """512 rows of one line: 2 KiB apart, next to each other, and nobody knows where."""
    tile = [np.ones(1, np.float32), np.full(1, 16, np.float32), np.full(1, 512, np.float32)]
    assert touched(B, tile, 64, (512, 512)).scattered[0] == 2
    assert touched(B, tile, 64, (512, 16)).scattered[0] == 1
    assert touched(B, tile, 64).scattered[0] == 1


def test_rows_that_follow_one_another_without_a_gap_are_one() -> None:
    tile = [np.ones(1, np.float32), np.full(1, 3, np.float32), np.full(1, 8, np.float32)]
    assert touched(B, tile, 64, (8, 3)).in_pieces(64)[0] == 1
    assert touched(B, tile, 64, (8, 16)).in_pieces(64)[0] == 16 / 3
    assert touched(B, tile, 64).in_pieces(128)[0] == 32 / 3


def test_rows_that_start_anywhere_touch_parts_of_two_lines() -> None:
    """Rows of 32 and of 12 bytes start at any of the 16 words of a line with the same frequency."""
    for words, pitch in ((8, 17), (3, 17)):
        tile = [np.ones(1, np.float32), np.full(1, words, np.float32), np.full(1, 16, np.float32)]
        lines = [len({(start + n) // 16 for n in range(words)}) for start in range(16)]
        found = touched(B, tile, 64, (16, pitch)).in_pieces(64)[0]
        assert found == pytest.approx(np.mean(lines) * 16 / words)


def test_a_dense_copy_has_no_short_rows() -> None:
    extents = [64, 1, 1, 1, 4, 512, 4, 16]
    tensors = {x: Tensor(x, (512, 512), DType.F32) for x in "ABC"}
    direct, copied = (
        cache_traffic(
            nest(extents, LOOPS, [A, B, C], dense), tensors, [32768.0], line_bytes=64
        ).moved[0, 1, 0]
        for dense in (0, 2)
    )
    assert copied < direct


def column_settings(**choices: int) -> IntArray:
    """A middling setting of the synthetic sketch, with some knobs chosen by index."""
    names = ["mr", "nv", "k_blocks", "m_blocks", "n_blocks", "k_unroll", "parallel"]
    setting = dict(zip(names, (3, 1, 0, 0, 0, 1, 0), strict=True)) | choices
    return np.array([[setting[n] for n in names]])


def secs(threads: int = 1, size: int = 512, **choices: int) -> float:
    prior = Prior(synthetic_space(size, size, size, threads=threads))
    return float(2.0 ** prior.log2_secs(0, column_settings(**choices))[0])


def test_one_accumulator_is_bound_by_latency() -> None:
    assert secs(mr=0, nv=0) > 3 * secs(mr=5, nv=1)


def test_spilling_is_punished() -> None:
    assert secs(mr=6, nv=3) > 1.5 * secs(mr=5, nv=1)


def test_two_threads_help_large_work_and_hurt_small() -> None:
    assert secs(threads=2, m_blocks=1, parallel=1) < 0.7 * secs(threads=2, m_blocks=1)
    small = {"threads": 2, "size": 8, "mr": 0, "nv": 0}
    assert secs(**small, parallel=1) > secs(**small)


def test_uneven_shares_are_slower_than_even_ones() -> None:
    """Three tasks on two threads take as long as four."""
    assert secs(threads=2, m_blocks=2, parallel=1) > 1.2 * secs(threads=2, m_blocks=1, parallel=1)


def test_prediction_is_at_least_the_time_at_the_peak() -> None:
    space = synthetic_space()
    prior = Prior(space)
    grid = setting_grids(space)[0]
    rows = grid.sample(np.random.default_rng(0), 500)
    at_peak = space.workload.flops / prior.machine.peak_flops[0]
    assert (2.0 ** prior.log2_secs(0, rows) >= at_peak).all()


def test_half_of_exp_is_its_polynomial() -> None:
    """Which is why a math call is priced at twice its multiply-adds; others take more."""
    target = replace(synthetic_target(), features=("avx512dq", "avx512f", "avx512vl"))
    written = math_function(UnaryOp.EXP, DType.F32, 16, target).lines
    assert len(written) == FUNCTION_OPS


def test_an_unprobed_target_has_nominal_rates() -> None:
    target = synthetic_target()
    bare = type(target).from_json(target.to_json() | {"probes": {}})
    machine = machine_for(bare, DType.F32)
    assert not machine.probed
    assert machine.clock_hz == NOMINAL_CLOCK_HZ
    assert machine.peak_flops[0] == 32 * NOMINAL_CLOCK_HZ
    assert machine_for(target, DType.F32).probed
    assert Probes() == bare.probes


@pytest.mark.parametrize(("threads", "caches"), [(1, 32768.0), (2, 32768.0)])
def test_shared_caches_are_divided_among_threads(threads: int, caches: float) -> None:
    machine = machine_for(synthetic_target(threads), DType.F32)
    assert machine.cache_bytes[0] == caches
    assert machine.cache_bytes[2] == (16 << 20) / threads


def test_pace_is_set_by_the_widest_float() -> None:
    assert compute_dtype(synthetic_space().workload) is DType.F32


@pytest.mark.parametrize("most_kept", [1 << 14, 5])
def test_kept_features_are_those_of_a_new_analysis(
    monkeypatch: pytest.MonkeyPatch, most_kept: int
) -> None:
    monkeypatch.setattr(features, "MOST_KEPT", most_kept)
    space = synthetic_space()
    rows = setting_grids(space)[0].sample(np.random.default_rng(0), 40)
    described = Featuriser(space)
    described(0, rows[:10])
    for order in (slice(None), slice(None), slice(None, None, -1)):
        found, new = described(0, rows[order]), Featuriser(space)(0, rows[order])
        assert found.features is not None
        assert new.features is not None
        assert np.array_equal(found.features, new.features)
        assert np.array_equal(found.log2_prior, new.log2_prior)


def test_features_are_finite_and_named_once() -> None:
    space = synthetic_space()
    names = FEATURES
    assert len(names) == len(set(names))
    for grid in setting_grids(space):
        rows = grid.sample(np.random.default_rng(1), 300)
        table = Featuriser(space)(grid.index, rows).features
        assert table is not None
        assert table.shape[0] == 300
        assert table.shape[1] > len(FEATURES)
        assert table.dtype == np.float32
        assert np.isfinite(table).all()


def test_features_tell_settings_apart() -> None:
    space = synthetic_space()
    grid = setting_grids(space)[0]
    rows = grid.sample(np.random.default_rng(2), 300)
    table = Featuriser(space)(0, rows).features
    assert table is not None
    assert len(np.unique(table, axis=0)) == len(rows)


def test_plain_loops_have_a_finite_time() -> None:
    plain = notation(
        "T[k,i,j] = where(k == 0, exp(X[i,j]), X[i,j] + 1.0);"
        " Y[k,i,j] = where(k == 1, T[0,i,j], T[1,j,i])",
        {"k": 2}, X="f32[30,30]",
    )  # fmt: skip
    space = space_for(plain.normalised(), synthetic_target())
    for number, sketch in enumerate(space.sketches):
        assert np.isfinite(Prior(space).log2_secs(number, np.asarray([sketch.default()]))).all()


def test_a_core_that_takes_two_cycles_for_a_vector_has_one_pipe() -> None:
    """As the peak and the clock say; with no clock there are two, and the clock is what fits."""
    lanes = synthetic_target().lanes(DType.F32)
    probed = [
        Probes({"f32": [16.0 * lanes]}, clock_ghz=4.0),
        Probes({"f32": [8.0 * lanes]}, clock_ghz=4.0),
        Probes({"f32": [8.0 * lanes]}),
    ]
    machines = [machine_for(replace(synthetic_target(), probes=p), DType.F32) for p in probed]
    assert [machine.fma_pipes for machine in machines] == [2.0, 1.0, 2.0]
    assert [machine.clock_hz for machine in machines] == [4e9, 4e9, 2e9]


def test_sums_that_follow_do_not_wait_for_the_ones_before() -> None:
    """Where a sum is of few instructions, others are under way beside it."""
    machine = machine_for(synthetic_target(), DType.F32)
    nothing = np.zeros((3, 1, 1), np.float32)
    traffic = Traffic(nothing[0, 0], nothing)

    def secs(ops_a_sum: float) -> float:
        one = {"vector_ops": 1e6, "chained_ops": 1e6, "accumulators": 1.0, "code_ops": ops_a_sum,
               "inner_trips": 1.0, "tasks": 1.0}  # fmt: skip
        counts = with_zeros({name: np.full(1, value) for name, value in one.items()})
        return float(combine(counts, traffic, machine).secs[0])

    assert secs(2 * OPS_IN_FLIGHT) == secs(OPS_IN_FLIGHT) > 3.9 * secs(OPS_IN_FLIGHT / 4)
    as_fast_as_pipes = secs(OPS_IN_FLIGHT / 64)
    assert secs(OPS_IN_FLIGHT / 32) == pytest.approx(as_fast_as_pipes, rel=1e-3)
    # Chains that just hide their latency stall now and then.
    stalled = pytest.approx(2 ** (1 / CHAIN_NORM) * as_fast_as_pipes, rel=0.01)
    assert secs(OPS_IN_FLIGHT / 8) == stalled


@pytest.mark.parametrize("probed", [False, True])
@pytest.mark.parametrize("caches", [1, 2, 3, 4])
def test_a_machine_may_have_any_number_of_caches(caches: int, probed: bool) -> None:
    one = example_target("znver3", 2)
    several = (*one.caches, replace(one.caches[-1], bytes=4 * one.caches[-1].bytes))[:caches]
    probes = (
        Probes(
            {"f32": [100.0, 200.0]},
            {level: [40.0, 80.0] for level in ("L1", "L2", "L3", "memory")},
            clock_ghz=3.0,
            strided_gbs={level: [10.0] for level in ("L2", "L3", "memory")},
        )
        if probed
        else Probes()
    )
    target = replace(one, caches=several, probes=probes)
    space = space_for(notation("C[i,j] += A[i,k] * B[k,j]", A="f32[64,96]", B="f32[96,80]"), target)
    for grid in setting_grids(space):
        rows = grid.sample(np.random.default_rng(0), 64)
        assert np.isfinite(Prior(space).log2_secs(grid.index, rows)).all()
