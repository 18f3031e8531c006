"""The bound: what binds, with how many threads, and that padding is no useful work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.schedules.workloads import notation
from tests.support.synthetic_sketch import synthetic_target
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.target import Target
from tilewright.tuner.machine.least_work import least_work, pipe_slots, saved_by_allowing_error
from tilewright.tuner.machine.roofline import bound_for, bound_of, home_level, shown_by_kernel

TARGET = synthetic_target()
PEAK = TARGET.probes.peak_gflops["f32"][0] * 1e9


def secs(spelled: str, target: Target = TARGET) -> float:
    return bound_for(parse_workload(spelled), target).secs


def test_a_large_product_is_bound_by_the_peak() -> None:
    found = bound_for(parse_workload("matmul:M=512,N=512,K=512"), TARGET)
    assert found.binds == "compute"
    assert found.threads == 1
    assert found.secs == pytest.approx(2 * 512**3 / PEAK)
    assert found.peak_gflops == pytest.approx(PEAK / 1e9)
    assert found.bandwidth_gbs == 20.0
    assert found.probed


def test_streaming_is_bound_by_the_level_the_data_fits_in() -> None:
    for size, level, gbs in ((16, "L1", 190.0), (128, "L2", 90.0), (1024, "L3", 45.0),
                             (4096, "memory", 20.0)):  # fmt: skip
        workload = parse_workload(f"elementwise_add_relu:M={size},N={size}")
        found = bound_for(workload, TARGET)
        assert home_level(workload.min_bytes, TARGET, 1) == level
        assert found.binds in (level, "compute")
        assert found.secs >= workload.min_bytes / (gbs * 1e9) * (1 - 1e-9)


def test_additions_alone_cannot_use_both_halves_of_an_fma() -> None:
    """4096 sums and 4096 maxima: 8192 slots of lanes that could do 16384 operations."""
    assert secs("elementwise_add_relu:M=64,N=64") >= 2 * 8192 / PEAK


def test_products_with_padding_are_not_useful() -> None:
    padded = secs("conv2d_nhwc:N=1,H=4,W=4,CI=64,CO=64,K=3,pad=1")
    per_axis = 3 + 3 + 2 + 2  # taps inside the image at each of 4 places
    assert padded == pytest.approx(2 * 64 * 64 * per_axis**2 / PEAK)


def test_threads_are_used_only_where_they_pay_for_the_region() -> None:
    two = synthetic_target(threads=2)
    large, small = "matmul:M=256,N=256,K=256", "matmul:M=8,N=8,K=8"
    assert bound_for(parse_workload(large), two).threads == 2
    assert bound_for(parse_workload(small), two).threads == 1
    assert secs(small, two) == secs(small)
    region = two.probes.parallel_region_secs
    assert secs(large, two) == pytest.approx(secs(large) / 2 + region)


def test_an_assumed_rate_is_marked() -> None:
    bare = Target.from_json(TARGET.to_json() | {"probes": {}})
    assert not bound_for(parse_workload("matmul:M=8,N=8,K=8"), bare).probed
    only_peak = replace(TARGET, probes=replace(TARGET.probes, bandwidth_gbs={}))
    assert not bound_for(parse_workload("matmul:M=8,N=8,K=8"), only_peak).probed


def test_a_product_costs_one_slot_with_its_addition_a_function_several() -> None:
    (product,) = parse_workload("matmul:M=2,N=3,K=5").stages
    assert pipe_slots(product) == 2 * 3 * 5
    softmax = parse_workload("softmax_mn:M=2,N=8")
    assert sum(pipe_slots(s) for s in softmax.stages) >= 2 * 8 * 6


def test_what_sees_constants_alone_is_computed_before_the_calls() -> None:
    expr = "V[k,j] = exp(B[k,j]); C[i,j] += A[i,k] * V[k,j]"
    tensors = ["A=f32[4,256]", "B=f32[256,256]"]
    each_call = bound_for(parse_workload(expr=expr, tensors=tensors), TARGET)
    ahead = bound_for(parse_workload(expr=expr, tensors=tensors, constants=["B"]), TARGET)
    assert ahead.secs < each_call.secs
    assert ahead.secs * (1 + 1e-9) >= 2 * 4 * 256 * 256 / PEAK
    output = "V[k,j] = exp(B[k,j])"
    assert bound_for(
        parse_workload(expr=output, tensors=tensors[1:], constants=["B"]), TARGET
    ) == bound_for(parse_workload(expr=output, tensors=tensors[1:]), TARGET)


def test_a_chain_of_products_has_less_to_do_where_an_error_is_allowed() -> None:
    square = ("f32", (64, 64))
    chain = from_notation("D[i,l] += A[i,j]*B[j,k]*C[k,l]", {"A": square, "B": square, "C": square})
    assert saved_by_allowing_error(chain) > 20
    assert saved_by_allowing_error(chain.allowing(1e-6)) == 1.0
    product = from_notation("D[i,k] += A[i,j]*B[j,k]", {"A": square, "B": square})
    assert saved_by_allowing_error(product) == 1.0


NARROW = {
    "i8": "matmul:M=256,N=256,K=256,dtype=i8",
    "u8": "matmul:M=256,N=256,K=256,dtype=u8s8s32",
    "bf16": "matmul:M=256,N=256,K=256,dtype=bf16",
}


def with_features(*features: str, triple: str = TARGET.triple, **peaks: float) -> Target:
    known = TARGET.probes.peak_gflops | {name: [value] for name, value in peaks.items()}
    probes = replace(TARGET.probes, peak_gflops=known)
    return replace(TARGET, features=features, triple=triple, probes=probes)


@pytest.mark.parametrize(
    ("dtype", "features", "triple", "by", "gain"),
    [
        ("i8", ("avx512vnni",), "x86_64-unknown-linux-gnu", "vpdpbusd", 4),
        ("u8", ("avxvnni",), "x86_64-unknown-linux-gnu", "vpdpbusd", 4),
        ("i8", ("amx-int8", "avx512vnni"), "x86_64-unknown-linux-gnu", "tdpbusd", 32),
        ("i8", ("avx2",), "x86_64-unknown-linux-gnu", "vpmaddwd", 2),
        ("bf16", ("avx512bf16",), "x86_64-unknown-linux-gnu", "vdpbf16ps", 2),
        ("i8", ("dotprod",), "aarch64-unknown-linux-gnu", "sdot", 4),
        ("bf16", ("bf16",), "aarch64-unknown-linux-gnu", "bfmmla", 4),
        ("i8", ("neon",), "aarch64-unknown-linux-gnu", "smlal", 2),
    ],
)
def test_sums_of_narrow_products_are_bound_by_the_instruction_for_them(
    dtype: str, features: tuple[str, ...], triple: str, by: str, gain: int
) -> None:
    workload = parse_workload(NARROW[dtype])
    derived = bound_for(workload, with_features(*features, triple=triple))
    assert (derived.by, derived.binds) == (by, "compute")
    assert derived.secs == pytest.approx(2 * 256**3 / (gain * PEAK))
    assert not derived.probed
    known = bound_for(workload, with_features(*features, triple=triple, **{by: 3 * PEAK / 1e9}))
    assert known.secs == pytest.approx(2 * 256**3 / (3 * PEAK))
    assert known.probed
    assert known.least_secs == known.secs


def test_without_an_instruction_narrow_floats_are_bound_by_what_they_are_widened_to() -> None:
    found = bound_for(parse_workload(NARROW["bf16"]), with_features("avx2"))
    assert (found.by, found.probed) == ("f32", True)
    assert found.secs == pytest.approx(2 * 256**3 / PEAK)


def test_products_of_different_types_are_widened_first() -> None:
    mixed = notation("C[i,j] += f32(A[i,k]) * B[k,j]", A="bf16[64,64]", B="f32[64,64]")
    assert bound_for(mixed, with_features("avx512bf16")).by == "f32"


def test_what_follows_the_products_counts_in_its_own_type() -> None:
    scaled = notation(
        "C[i,j] += i32(A[i,k]) * i32(B[k,j]); D[i,j] = f32(C[i,j]) * 0.5",
        A="i8[64,64]", B="i8[64,64]",
    )  # fmt: skip
    found = bound_for(scaled, with_features("avx512vnni"))
    assert found.by == "vpdpbusd+f32"
    assert found.secs == pytest.approx((2 * 64**3 / 4 + 2 * 64**2) / PEAK)


@pytest.mark.parametrize(("dtype", "lanes"), [("u8", 4), ("i32", 1), ("i64", 0.5)])
def test_whole_numbers_that_are_not_multiplied_take_as_many_bits_as_they_have(
    dtype: str, lanes: float
) -> None:
    work = least_work(notation("Y[i] max= X[i,j]", X=f"{dtype}[64,4096]"))
    found = bound_of(replace(work, min_bytes=1), TARGET)
    assert found.secs == pytest.approx(2 * work.slots / (lanes * PEAK))
    assert not found.probed


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_no_time_is_implausible_for_a_type_whose_peak_was_not_probed(dtype: str) -> None:
    """f32's peak stands in for the bound, and integers may be faster: by VNNI, fourfold."""
    workload = notation("C[i,j] += A[i,k] * B[k,j]", A=f"{dtype}[64,64]", B=f"{dtype}[64,64]")
    assumed = bound_for(workload, TARGET)
    assert assumed.secs > 0
    assert assumed.least_secs == 0
    probes = replace(TARGET.probes, peak_gflops={**TARGET.probes.peak_gflops, dtype: [100.0]})
    probed = bound_for(workload, replace(TARGET, probes=probes))
    assert probed.least_secs == pytest.approx(2 * 64**3 / 100e9)


def test_a_kernel_that_beats_an_instruction_raises_its_figure() -> None:
    target = with_features("avx512vnni", vpdpbusd=3 * PEAK / 1e9)
    work = least_work(parse_workload(NARROW["i8"]))
    shown = shown_by_kernel(work, target, bound_of(work, target).secs / 1.01)
    assert shown.peak_gflops["f32"] == TARGET.probes.peak_gflops["f32"]
    assert Target.from_json(replace(target, probes=shown).to_json()).probes == shown
