"""Kernels that read at data: every schedule gives the documented elements, and the check finds
kernels that treat integers outside in another way."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.schedule_fuzz.check import this_machine
from tests.support.schedules.small_tables import table_read
from tests.support.schedules.spaces import settings
from tests.support.schedules.spaces import target as any_target
from tests.support.schedules.workloads import notation
from tilewright.schedules import Workload
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.primitives import CacheRead, Split, TransformLayout, Unroll, Vectorize
from tilewright.schedules.sketches import space_for
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.tuner import compile as compile_to_call
from tilewright.tuner.emit.kernel import llvm_text
from tilewright.tuner.judge.index_inputs import indexing_inputs, indices
from tilewright.tuner.judge.input_plan import InputKind, plan_inputs
from tilewright.tuner.judge.inputs import make_inputs
from tilewright.tuner.judge.oracle import Oracle
from tilewright.tuner.machine.native_target import native_target

Array = npt.NDArray[Any]

WORKLOADS: dict[str, tuple[str, dict[str, str]]] = {
    "rows": ("Y[i,j] = T[I[i], j]", {"T": "f32[50,37]", "I": "i32[20]"}),
    "rows, clamped, long": ("Y[i,j] = T[clamp(I[i]), j]", {"T": "f32[50,64]", "I": "i64[20]"}),
    "rows, wrapped": ("Y[i,j] = T[wrap(I[i]), j]", {"T": "i8[50,64]", "I": "i64[20]"}),
    "a few of each row": ("Y[i,j] = X[i, I[i,j]]", {"X": "f32[9,37]", "I": "i32[9,33]"}),
    "one of each row": ("Y[i] = X[i, I[i]]", {"X": "f64[50,37]", "I": "i64[50]"}),
    "bytes by a table": ("Y[i,j] = L[X[i,j]]", {"L": "u8[256]", "X": "u8[7,133]"}),
    "halves of bytes": (
        "Y[i,j] = L[(W[i,j//2] >> (4*(j%2))) & 15]", {"L": "f32[16]", "W": "u8[9,32]"},
    ),
    "windows at data": (
        "S[i] += X[clamp(I[i] + k - 1)] * W[k]", {"X": "f32[50]", "I": "i32[20]", "W": "f32[7]"},
    ),
    "sums of rows": (
        "S[i] += T[I[i,k], j] * W[j]", {"T": "f32[50,37]", "I": "i32[20,9]", "W": "f32[37]"},
    ),
    "rows of a stage": (
        "U[i,j] = T[i,j]*2.0; Y[i,j] = U[I[i],j] + U[wrap(I[i]),j]",
        {"T": "f32[50,37]", "I": "i32[20]"},
    ),
    "integers of a stage": (
        "P[i] = I[i] + 1; Y[i,j] = T[P[i],j]", {"T": "f32[50,37]", "I": "i32[20]"},
    ),
    "integers by integers": (
        "Y[i,j] = T[A[B[i]], j+1]", {"T": "f32[50,37]", "A": "i32[15]", "B": "i64[20]"},
    ),
    "rows at the greatest element": (
        "Y[i,j] = T[argmax(X[i,k],k), j]", {"T": "f32[50,37]", "X": "f32[20,50]"},
    ),
    "bilinear samples": (
        "Y[i,c] = X[i32(floor(P[i])), c] * (1.0 - P[i] + floor(P[i]))"
        " + X[i32(floor(P[i])) + 1, c] * (P[i] - floor(P[i]))",
        {"X": "f32[9,19]", "P": "f32[21]"},
    ),
    "few rows": ("Y[i,j] = T[clamp(I[i,j]), i, j+1]", {"T": "f32[8,9,38]", "I": "i32[9,37]"}),
    "few rows of doubles, zeros outside": (
        "Y[i,j] = T[I[i,j], i, 2*j]", {"T": "f64[3,9,74]", "I": "i64[9,37]"},
    ),
    "few rows at twice the resolution": (
        "Y[i,j] = T[clamp(I[i,j]), i//2 + 2*(i%2), j//2 + 2*(j%2)]",
        {"T": "f32[8,7,21]", "I": "i32[10,38]"},
    ),
    "few numbers": ("Y[i,j] = T[clamp(I[i,j])] * 2.0", {"T": "f64[5]", "I": "i32[9,37]"}),
    "cells of a grid": (
        "Y[i,j] = T[i//8, j//8, clamp(I[i,j])] + T[i//8 + 1, j//8 + 1, clamp(I[i,j] + 1)]",
        {"T": "f32[3,6,12]", "I": "i32[9,37]"},
    ),
    "a table of integers, padded": (
        "Y[i,j] = where(j > 4, L[clamp(I[i,j-5])], 7)", {"L": "i32[64]", "I": "i32[9,41]"},
    ),
    "a table at two integers": (
        "Y[i,j] = T[clamp(I[i,j]), 2, wrap(J[i,j])]",
        {"T": "f32[2,3,9]", "I": "i32[9,37]", "J": "i64[9,37]"},
    ),
    "one byte of two": ("Y[i] = X[zero(I[i])]", {"X": "bf16[300]", "I": "i8[77]"}),
}  # fmt: skip


def made(name: str) -> Workload:
    text, tensors = WORKLOADS[name]
    return notation(text, None, **tensors)


def check(workload: Workload, trace: Trace, target: Target) -> None:
    kernel = compile_to_call(workload, target=target, trace=trace)
    for case in Oracle(workload).full():
        outs = [np.empty(t.shape, t.dtype.numpy) for t in workload.output_tensors]
        kernel(*case.inputs, out=outs[0])
        assert case.check(outs) is None, f"{case.kind}, {trace}"


@pytest.mark.parametrize("name", WORKLOADS)
def test_kernels_of_every_sketch_read_the_documented_elements(name: str) -> None:
    workload, target = made(name), native_target(threads=1, probe=False)
    space = space_for(workload, target)
    assert not space.dropped
    for sketch in space.sketches:
        check(workload, sketch.trace(sketch.default()), target)


@pytest.mark.parametrize("bits", [256, 512])
@pytest.mark.parametrize("name", [*WORKLOADS][-8:-1])
def test_kernels_of_small_tables_read_the_documented_elements(name: str, bits: int) -> None:
    workload, target = made(name), this_machine(1, bits)
    for sketch in space_for(workload, target).sketches:
        for setting in settings(sketch, 4, bits):
            check(workload, sketch.trace(setting), target)


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("seed", range(25))
def test_random_small_tables_are_read_at_the_documented_elements(seed: int, bits: int) -> None:
    workload = table_read(random.Random(seed))
    for sketch in space_for(workload, this_machine(1, bits)).sketches:
        for setting in [sketch.default(), *settings(sketch, 1, seed)]:
            check(workload, sketch.trace(setting), this_machine(1, bits))


@pytest.mark.parametrize("name", ["rows", "a few of each row", "bytes by a table"])
@pytest.mark.parametrize("lanes", [4, 8])
def test_masked_vectors_read_the_documented_elements(name: str, lanes: int) -> None:
    steps = (Split("s0.d1", lanes), Vectorize("s0.d1i"))
    check(made(name), Trace(steps), native_target(threads=1, probe=False))


def test_a_row_is_read_in_vectors_at_one_index() -> None:
    workload = notation("Y[i,j] = T[I[i], j]", T="f32[50,64]", I="i32[20]")
    trace = Trace((Split("s0.d1", 16), Vectorize("s0.d1i"), Unroll("s0.d1o")))
    assert to_text(lower(workload, trace)).splitlines()[3:] == [
        "    for s0.d1i in range(16):                            # vectorized",
        "      s0[s0.d0, s0.d1i + 16*s0.d1o] = (i0[clamp(i1[s0.d0]), s0.d1i + 16*s0.d1o]"
        " if i1[s0.d0] < 50",
        "            else 0.0) if 0 <= i1[s0.d0] else 0.0",
    ]
    text = llvm_text(workload, trace, native_target(threads=1, probe=False))
    body = text[text.index("define") :]
    assert body.count("load i32") == 1
    assert body.count("icmp sle") == 1
    assert body.count("load <16 x float>") == 4
    assert "extractelement" not in body


@pytest.mark.parametrize("name", ["cells of a grid", "a table of integers, padded"])
def test_small_tables_are_looked_up_in_registers(name: str) -> None:
    text = text_of_vectors(name)
    assert "@llvm.x86.avx512.vpermi2var.ps.512(" in text
    assert "extractelement <16 x" not in text


@pytest.mark.parametrize("quotient_last", [False, True])
@pytest.mark.parametrize("extent", [8, 16, 32])
def test_tables_in_another_layout_are_read_at_the_documented_elements(
    extent: int, quotient_last: bool
) -> None:
    dims = ((0, 2), (0, 1)) if quotient_last else ((0, 1), (0, 2))
    workload = notation("Y[i] = T[clamp(I[i])] * 2.0", T=f"f32[{extent}]", I="i32[64]")
    for bits in (128, 256, 512):
        steps = (
            CacheRead("i0", "", "P"),
            TransformLayout("P", ((0, 4),), dims),
            Split("s0.d0", bits // 32),
            Vectorize("s0.d0i"),
        )
        check(workload, Trace(steps), this_machine(vector_bits=bits))


@pytest.mark.parametrize(
    "name", ["few rows", "few rows at twice the resolution", "few rows of doubles, zeros outside"]
)
def test_few_rows_are_loaded_in_vectors_and_selected(name: str) -> None:
    """Also the last row, beyond whose end no vector may reach."""
    text = text_of_vectors(name)
    lanes = 512 // made(name).inputs[0].dtype.bits
    assert f"extractelement <{lanes} x i" not in text
    assert text.count("select <") >= made(name).inputs[0].shape[0] - 1


def text_of_vectors(name: str) -> str:
    """The code of the loops of the first sketch, for vectors of 512 bits."""
    workload, features = made(name), ("avx512bw", "avx512dq", "avx512f", "avx512vl")
    machine = replace(any_target(1, 512, 32), cpu="x86-64-v4", features=features)
    sketch = space_for(workload, machine).sketches[0]
    text = llvm_text(workload, sketch.trace(sketch.default()), machine)
    return text[text.index("define") :]


# --- what the check draws and finds --------------------------------------------------------------


def test_indices_are_drawn_inside_near_the_ends_and_far_outside() -> None:
    drawn = indices(np.zeros(4000, np.int64), (50,), 0, np.random.default_rng(1))
    inside = (drawn >= 0) & (drawn < 50)
    assert 0.4 < inside.mean() < 0.7
    assert set(range(50)) <= set(drawn.tolist())
    assert {-1, 50, -50, -51, 49, 100, np.iinfo(np.int64).min, np.iinfo(np.int64).max} <= set(
        drawn.tolist()
    )
    low = (drawn & 0xFFFFFFFF).astype(np.int64)
    assert ((drawn != low) & (low < 50)).any(), "inside in their low 32 bits only"
    narrow = indices(np.zeros(400, np.uint8), (50,), 0, np.random.default_rng(1))
    assert narrow.dtype == np.uint8
    assert (narrow >= 50).any()


def test_inputs_of_indices_are_found_through_stages_and_expressions() -> None:
    assert indexing_inputs(made("rows")) == {"I": (50,)}
    assert indexing_inputs(made("integers of a stage")) == {"I": (50,)}
    assert indexing_inputs(made("integers by integers")) == {"A": (50,), "B": (15, 50)}
    assert indexing_inputs(made("halves of bytes")) == {"W": (16,)}
    assert indexing_inputs(made("rows at the greatest element")) == {}


@pytest.mark.parametrize("kind", InputKind)
def test_every_kind_of_inputs_has_indices_of_all_kinds(kind: InputKind) -> None:
    workload = notation("Y[i,j] = T[I[i], j]", T="f32[50,3]", I="i32[500]")
    at = make_inputs(workload, kind, 3, plan_inputs(workload))[1]
    assert (at < -1000).any()
    assert (at == -1).any()
    assert (at == 50).any()
    assert (at > 1000).any()
    assert len(set(at[(at >= 0) & (at < 50)].tolist())) == 50


Wrong = Callable[[Array, Array], Array]


def with_zeros(table: Array, at: Array) -> Array:
    inside = (at >= 0) & (at < len(table))
    return np.where(inside[:, None], table[np.clip(at, 0, len(table) - 1)], 0)


WRONG: dict[str, tuple[str, str, Wrong]] = {
    "clamps instead of zeros": ("zero", "i32", lambda t, at: t[np.clip(at, 0, len(t) - 1)]),
    "wraps instead of zeros": ("zero", "i32", lambda t, at: t[at % len(t)]),
    "takes -1 as the last": (
        "zero",
        "i32",
        lambda t, at: with_zeros(t, at + 50 * (at == -1)),
    ),
    "reads at the extent": ("zero", "i32", lambda t, at: with_zeros(t, np.where(at == 50, 49, at))),
    "zeros instead of clamping": ("clamp", "i32", with_zeros),
    "clamps above only": ("clamp", "i64", lambda t, at: t[np.abs(np.minimum(at, 49)) % 50]),
    "keeps 32 bits": ("clamp", "i64", lambda t, at: t[np.clip(at.astype(np.int32), 0, 49)]),
    "keeps 32 bits for zeros": ("zero", "i64", lambda t, at: with_zeros(t, at.astype(np.int32))),
    "a remainder towards zero": ("wrap", "i32", lambda t, at: t[np.abs(np.fmod(at, 50))]),
    "wraps once": ("wrap", "i32", lambda t, at: t[np.clip(at + 50 * (at < 0), 0, 49)]),
    "wraps 32 bits": ("wrap", "i64", lambda t, at: t[at.astype(np.int32) % 50]),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_check_refuses_kernels_that_ignore_the_policy(name: str) -> None:
    policy, dtype, wrong = WRONG[name]
    workload = notation(f"Y[i,j] = T[{policy}(I[i]), j]", T="f32[50,3]", I=f"{dtype}[40]")
    case = Oracle(workload).quick
    assert case.check([wrong(*case.inputs).astype(np.float32)]) is not None
