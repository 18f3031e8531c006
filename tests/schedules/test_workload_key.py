"""The normal form and its key: the same for every spelling, different for every computation."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace

import pytest

from tests.support.paths import ROOT
from tilewright.schedules import operators
from tilewright.schedules.algebra.scalar import Const
from tilewright.schedules.dtypes import DType
from tilewright.schedules.frontend import expr as x
from tilewright.schedules.frontend.expr_core import Expr, Index
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.workload.validate import validate
from tilewright.schedules.workload.workload import Workload

DOC = ROOT / "docs" / "workload.md"


def python_matmul() -> Workload:
    right, left = x.placeholder("right", (4, 5)), x.placeholder("left", (3, 4))
    inner = x.reduce_axis(4)
    out = x.compute(
        "out", (3, 5), lambda row, col: x.sum(right[inner, col] * left[row, inner], inner)
    )
    return Workload.of(out, inputs=[left, right], name="mine")


def test_three_spellings_of_a_matmul_are_one() -> None:
    notation = from_notation(
        "C[i,j] += B[k,j] * A[i,k]", {"A": ("f32", (3, 4)), "B": ("f32", (4, 5))}
    )
    library = operators.matmul(M=3, N=5, K=4)
    assert python_matmul().key == notation.key == library.key
    assert python_matmul().normalised() == library.normalised()
    assert python_matmul().canonical_bytes == library.canonical_bytes


def test_three_spellings_of_a_convolution_with_epilogue_are_one() -> None:
    params = {"N": 1, "H": 8, "W": 7, "CI": 4, "CO": 6, "K": 3, "stride": 2, "pad": 1}
    library = operators.build("conv2d_nhwc", params, epilogue="bias+relu")
    specs = {"X": ("f32", (1, 8, 7, 4)), "W": ("f32", (3, 3, 4, 6)), "b": ("f32", (6,))}
    notation = from_notation(
        "T[n,h,w,o] += W[r,s,c,o] * X[n, 2*h+r-1, 2*w+s-1, c];"
        "Y[n,h,w,o] = max(0, b[o] + T[n,h,w,o])",
        specs,
    )
    data, taps, bias = (x.placeholder(n, shape) for n, (_, shape) in specs.items())
    c, s, r = x.reduce_axis(4), x.reduce_axis(3), x.reduce_axis(3)

    def conv(n: Index, h: Index, w: Index, o: Index) -> Expr:
        inside = x.all_of(h * 2 + r >= 1, r + 2 * h < 9, w * 2 + s - 1 >= 0, 2 * w + s - 1 < 7)
        read = x.select(inside, data[n, h * 2 + r - 1, w * 2 + s - 1, c], 0)
        return x.maximum(x.sum(read * taps[r, s, c, o], axis=(c, s, r)) + bias[o], 0.0)

    python = Workload.of(x.compute("Z", (1, 4, 4, 6), conv), inputs=[data, taps, bias])
    assert library.key == notation.key == python.key


def test_three_spellings_of_softmax_are_one() -> None:
    library = operators.softmax_mn(M=4, N=6)
    notation = from_notation(
        "m[i] max= X[i,j]; e[i,j] = exp(X[i,j] - m[i]); s[i] += e[i,j]; Y[i,j] = e[i,j] / s[i]",
        {"X": ("f32", (4, 6))},
    )
    assert library.key == notation.key


def test_transposed_convolution_in_notation_is_the_library_one() -> None:
    library = operators.build(
        "conv2d_transpose_nhwc", {"H": 4, "W": 4, "CI": 2, "CO": 3, "K": 4, "stride": 2, "pad": 1}
    )
    notation = from_notation(
        "Y[n,h,w,o] += where((h+1-r)%2 == 0 && (w+1-s)%2 == 0,"
        " X[n, (h+1-r)//2, (w+1-s)//2, c], 0) * W[r,s,c,o]",
        {"X": ("f32", (1, 4, 4, 2)), "W": ("f32", (4, 4, 2, 3))},
        {"h": 8, "w": 8},
    )
    assert library.key == notation.key


SHAPES = {"A": ("f32", (4, 6)), "B": ("f32", (6, 4))}
BASE = "C[i,j] += A[i,k] * B[k,j]"


@pytest.mark.parametrize(
    "text",
    [
        "C[i,j] += A[j,k] * B[k,i]",
        "C[i,j] max= A[i,k] * B[k,j]",
        "C[i,j] += A[i,k] + B[k,j]",
        "C[i,j] += A[i,k] * B[k,j] * 2",
        "C[j,i] += A[i,k] * B[k,i]; D[i,j] = C[i,j]",
        "T[i,j] += A[i,k] * B[k,j]; C[i,j] = T[i,j] + 0",
    ],
)
def test_other_computations_have_other_keys(text: str) -> None:
    base = from_notation(BASE, SHAPES)
    other = from_notation(text, SHAPES, {"j": 4, "i": 4} if "D[" in text else None)
    assert base.key != other.key


def test_types_shapes_constants_order_and_outputs_are_part_of_the_key() -> None:
    base = from_notation(BASE, SHAPES)
    a, b = base.inputs
    swapped = replace(base, inputs=(b, a))
    constant = replace(base, inputs=(a, replace(b, constant=True)))
    double = from_notation(BASE, {n: ("f64", s) for n, (_, s) in SHAPES.items()})
    wider = from_notation(BASE, {**SHAPES, "B": ("f32", (6, 5))})
    keys = {w.key for w in (base, swapped, constant, double, wider)}
    assert len(keys) == 5
    two = from_notation("P[i] = A[i,0] + 1; Q[i] = A[i,0] * 2", {"A": ("f32", (4, 6))})
    assert two.key != replace(two, outputs=("Q", "P")).key
    assert two.key != replace(two, outputs=("P",)).key


def test_the_sign_of_a_zero_is_part_of_the_key() -> None:
    found = {
        text: from_notation(f"Y[i] = {text}", {"X": ("f32", (8,))})
        for text in (
            "where(i >= 1, where(i < 5, X[i], -0.0), 0.0)",
            "where(i >= 1 && i < 5, X[i], 0.0)",
            "where(i >= 1 && i < 5, X[i], -0.0)",
            "X[i] * 0.0 + X[i] * 0.0",
            "X[i] * 0.0 + X[i] * -0.0",
        )
    }
    assert len({workload.key for workload in found.values()}) == len(found)
    for workload in found.values():
        assert Workload.from_text(json.dumps(workload.to_json())).key == workload.key


def test_equal_constants_are_those_a_kernel_cannot_tell_apart() -> None:
    zero, minus = Const(0.0, DType.F32), Const(-0.0, DType.F32)
    assert zero != minus
    assert len({zero, minus, Const(0, DType.F32), Const(0.0, DType.F64)}) == 3
    assert zero.is_plus_zero
    assert not minus.is_plus_zero
    assert len({Const(float("nan"), DType.F32), Const(float("nan"), DType.F32)}) == 1
    assert Const(1, DType.I32) == Const(1, DType.I32) != Const(1, DType.I64)
    assert zero != 0.0


def test_names_and_declared_counts_are_not() -> None:
    base = operators.matmul(M=3, N=5, K=4)
    assert base.key == replace(base, name="x", declared_flops=1, declared_min_bytes=2).key


def test_dead_stages_and_repeated_ones_go() -> None:
    workload = from_notation(
        "T[i] = A[i] + 1; U[i] = A[i] + 1; D[i] = A[i] * 3; Y[i] = T[i] * U[i]",
        {"A": ("f32", (4,))},
    )
    trimmed = replace(workload, outputs=("Y",)).normalised()
    assert [s.name for s in trimmed.stages] == ["s0", "s1"]
    same = from_notation("T[i] = 1 + A[i]; Y[i] = T[i] * T[i]", {"A": ("f32", (4,))})
    assert trimmed == same.normalised()


def test_equal_outputs_stay_two() -> None:
    workload = from_notation("P[i] = A[i] + 1; Q[i] = 1 + A[i]", {"A": ("f32", (4,))})
    normal = workload.normalised()
    assert len(normal.stages) == 2
    assert normal.outputs == ("s0", "s1")
    validate(normal)


def test_axes_used_alike_do_not_depend_on_their_order() -> None:
    specs = {"A": ("f32", (5, 5)), "B": ("f32", (5, 5))}
    one = from_notation("y[0] += A[p,q] * B[q,p] * A[q,p]", specs)
    two = from_notation("y[0] += A[q,p] * A[p,q] * B[p,q]", specs)
    three = from_notation("y[0] += (A[a,b] * B[b,a]) * A[b,a]", specs)
    assert one.key == three.key
    # Another association of the product is another rounding, so another computation.
    assert one.key != two.key


def test_the_normal_form_is_valid_and_its_own_normal_form() -> None:
    for text in (
        "layernorm_mn:M=3,N=4",
        "conv2d_transpose_nhwc:H=3,W=3,CI=2,CO=2,K=3,stride=2",
        "max_pool2d_nhwc:H=5,W=5,C=2,K=3,pad=1,dtype=u8",
    ):
        normal = parse_workload(text).normalised()
        validate(normal)
        assert normal.normalised() == normal
        assert [t.name for t in normal.inputs] == [f"i{n}" for n in range(len(normal.inputs))]


def test_normalising_is_quick() -> None:
    conv = operators.conv2d_nhwc(H=56, W=56, CI=64, CO=64, K=3, pad=1, epilogue="bias+relu")
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    fresh = replace(conv, name="again")
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        fresh.normalised()
    finally:
        sys.setprofile(before)
    # Beginnings and ends of functions: 17,500 today; the bound only catches a change of kind.
    assert calls < 200_000


def documented_vectors() -> list[tuple[str, str]]:
    """Rows `| spelling | key |` of the table of key test vectors in docs/workload.md."""
    return re.findall(r"^\| `([^`]+)` \| `([0-9a-f]{64})` \|$", DOC.read_text(), re.MULTILINE)


def vector(spelling: str) -> Workload:
    """A spelling of the table: an operator, or `notation @ A=f32[...] B=... r=3`."""
    text, at, rest = spelling.partition(" @ ")
    if not at:
        return parse_workload(text)
    given = rest.split()
    return parse_workload(
        expr=text,
        tensors=[g for g in given if "[" in g],
        ranges=[g for g in given if "[" not in g],
    )


def test_the_documented_keys_are_the_keys() -> None:
    found = documented_vectors()
    assert len(found) >= 8
    assert {spelling: vector(spelling).key for spelling, _ in found} == dict(found)
