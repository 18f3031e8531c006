"""The operator library: names, parameters and counts of the reference list, and what they mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.schedules import operators
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.spelling import parse_operator, parse_ranges, parse_workload
from tilewright.schedules.workload.flops import counted_flops, useful_flops
from tilewright.schedules.workload.size import check_limits
from tilewright.schedules.workload.validate import validate
from tilewright.schedules.workload.workload import Workload

REFERENCE = json.loads((Path(__file__).parent / "operator_counts.json").read_text())


def random_inputs(workload: Workload) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [
        rng.integers(-4, 5, size=t.shape).astype(t.dtype.numpy)
        if t.dtype is not DType.U8
        else rng.integers(0, 9, size=t.shape).astype(np.uint8)
        for t in workload.inputs
    ]


def run(workload: Workload, *inputs: np.ndarray) -> np.ndarray:
    return np.asarray(evaluate(workload, list(inputs))[0])


@pytest.mark.parametrize("entry", REFERENCE, ids=lambda e: e["name"])
def test_counts_are_those_of_the_reference_list(entry: dict[str, Any]) -> None:
    options: dict[str, object] = {k: entry[k] for k in ("dtype", "epilogue") if k in entry}
    workload = operators.build(entry["op"], {**entry["params"], **options})
    assert workload.flops == entry["flops"]
    assert workload.min_bytes == entry["min_bytes"]
    assert parse_operator(workload.name) == workload


def test_the_reference_list_covers_every_operator_but_one() -> None:
    listed = {e["op"] for e in REFERENCE}
    assert set(operators.OPERATORS) - listed == {"matmul_tn"}


def windows(x: np.ndarray, h: int, w: int, r: int, s: int) -> np.ndarray:
    return x[:, h : h + r, w : w + s]


def test_conv2d_with_everything() -> None:
    workload = operators.build(
        "conv2d_nhwc",
        {"N": 2, "H": 7, "W": 6, "CI": 4, "CO": 6, "KH": 3, "KW": 2, "stride": 2, "pad_h": 2,
         "pad_w": 1, "dilation_h": 2, "groups": 2},
    )  # fmt: skip
    x, w = random_inputs(workload)
    wide = np.pad(x, ((0, 0), (2, 2), (1, 1), (0, 0)))
    out = np.zeros((2, 4, 4, 6), np.float32)
    for h in range(4):
        for v in range(4):
            for o in range(6):
                channels = slice(2 * (o // 3), 2 * (o // 3) + 2)
                read = wide[:, 2 * h : 2 * h + 5 : 2, 2 * v : 2 * v + 2, channels]
                out[:, h, v, o] = (read * w[..., o]).sum((1, 2, 3))
    np.testing.assert_array_equal(run(workload, x, w), out)


def test_depthwise_and_pooling() -> None:
    depthwise = operators.build(
        "depthwise_conv2d_nhwc", {"h": 5, "w": 5, "c": 3, "k": 3, "pad": 1, "stride": 2}
    )
    x, w = random_inputs(depthwise)
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    wanted = [
        [(wide[0, h : h + 3, v : v + 3] * w).sum((0, 1)) for v in (0, 2, 4)] for h in (0, 2, 4)
    ]
    np.testing.assert_array_equal(run(depthwise, x, w)[0], wanted)
    pool = operators.build(
        "max_pool2d_nhwc", {"h": 5, "w": 5, "c": 3, "k": 3, "pad": 1, "stride": 2, "dtype": "i8"}
    )
    (x,) = random_inputs(pool)
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-128)
    best = [[wide[0, h : h + 3, v : v + 3].max((0, 1)) for v in (0, 2, 4)] for h in (0, 2, 4)]
    np.testing.assert_array_equal(run(pool, x)[0], best)


@pytest.mark.parametrize(("k", "stride", "pad"), [(4, 2, 1), (3, 2, 1), (2, 3, 0), (3, 1, 1)])
def test_transposed_convolution_scatters(k: int, stride: int, pad: int) -> None:
    workload = operators.build(
        "conv2d_transpose_nhwc",
        {"H": 4, "W": 3, "CI": 2, "CO": 3, "K": k, "stride": stride, "pad": pad},
    )
    x, w = random_inputs(workload)
    full = np.zeros((1, 3 * stride + k, 2 * stride + k, 3), np.float32)
    for i in range(4):
        for j in range(3):
            block = np.einsum("c,rsco->rso", x[0, i, j], w)
            full[0, i * stride : i * stride + k, j * stride : j * stride + k] += block
    height, width = 3 * stride - 2 * pad + k, 2 * stride - 2 * pad + k
    wanted = full[:, pad : pad + height, pad : pad + width]
    np.testing.assert_array_equal(run(workload, x, w), wanted)
    assert useful_flops(workload) == workload.flops
    assert counted_flops(workload) >= workload.flops


def test_capsules_and_batches() -> None:
    capsule = operators.build(
        "conv2d_capsule_nhwijc",
        {"H": 4, "W": 4, "CI": 2, "CO": 3, "K": 3, "stride": 1, "pad": 0, "capsule": 2},
    )
    x, w = random_inputs(capsule)
    patches = np.stack(
        [np.stack([x[:, h : h + 3, v : v + 3] for v in range(2)], 1) for h in range(2)], 1
    )
    wanted = np.einsum("nhvrsikc,rskjco->nhvijo", patches, w)
    np.testing.assert_array_equal(run(capsule, x, w), wanted)
    tbg = operators.build("transpose_batch_matmul", {"batch": 2, "seq": 3, "heads": 4, "dim": 5})
    q, v = random_inputs(tbg)
    np.testing.assert_array_equal(run(tbg, q, v), np.einsum("bihk,bjhk->bhij", q, v))
    nt = operators.build("batch_matmul_nt", {"B": 2, "M": 3, "N": 4, "K": 5})
    a, b = random_inputs(nt)
    np.testing.assert_array_equal(run(nt, a, b), np.einsum("bik,bjk->bij", a, b))


def test_rowwise_operators() -> None:
    rng = np.random.default_rng(5)
    a = rng.normal(size=(4, 9)).astype(np.float32)
    e = np.exp(a - a.max(1, keepdims=True))
    softmax = e / e.sum(1, keepdims=True)
    np.testing.assert_allclose(run(operators.build("softmax_mn", M=4, N=9), a), softmax, rtol=1e-5)
    gamma, beta = rng.normal(size=(2, 9)).astype(np.float32)
    centred = a - a.mean(1, keepdims=True)
    wanted = centred / np.sqrt(a.var(1, keepdims=True) + 1e-5) * gamma + beta
    layernorm = operators.build("layernorm_mn", M=4, N=9)
    np.testing.assert_allclose(run(layernorm, a, gamma, beta), wanted, rtol=1e-4, atol=1e-5)
    cube = rng.normal(size=(2, 3, 4)).astype(np.float32)
    norm = np.sqrt((cube**2).sum((1, 2)))
    np.testing.assert_allclose(run(operators.build("norm_bmn", B=2, M=3, N=4), cube), norm, 1e-5)
    np.testing.assert_array_equal(run(operators.build("transpose_mn", M=4, N=9), a), a.T)
    np.testing.assert_allclose(run(operators.build("colsum_mn", M=4, N=9), a), a.sum(0), 1e-5)


def test_epilogues_follow_in_the_order_given() -> None:
    shape = {"M": 3, "N": 4, "K": 5}
    workload = operators.build("matmul", shape, epilogue="bias+add+relu6")
    assert [t.name for t in workload.inputs] == ["A", "B", "bias", "residual"]
    a, b, bias, residual = random_inputs(workload)
    wanted = np.clip(a @ b + bias + residual, 0, 6)
    np.testing.assert_array_equal(run(workload, a, b, bias, residual), wanted)
    assert operators.build("matmul", shape, epilogue="bias_relu").key == (
        operators.build("matmul", shape, epilogue="Bias+ReLU").key
    )
    gelu = operators.build("matmul", shape, epilogue="gelu")
    x = (a @ b).astype(np.float64)
    tanh_form = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(run(gelu, a, b), tanh_form, rtol=1e-5, atol=1e-6)


def test_requantisation_rounds_and_clips() -> None:
    workload = operators.build("gemv", N=4, K=3, dtype="u8s8s32", epilogue="requant")
    assert workload.output_tensors[0].dtype is DType.U8
    w = np.array([[1, 0, 0], [2, 0, 0], [-9, 0, 0], [127, 127, 127]], np.int8)
    x = np.array([3, 0, 9], np.uint8)
    scale, zero = np.full(4, 0.5, np.float32), np.array([1], np.float32)
    # 3*0.5+1 = 2.5 -> 3, 6*0.5+1 = 4, clipped to 0, clipped to 255
    np.testing.assert_array_equal(run(workload, w, x, scale, zero), [3, 4, 0, 255])


@pytest.mark.parametrize(
    ("dtype", "data", "weight", "out"),
    [("f64", "f64", "f64", "f64"), ("bf16", "bf16", "bf16", "f32"), ("u8s8s32", "u8", "i8", "i32"),
     ("i8", "i8", "i8", "i32"), ("i32", "i32", "i32", "i32")],
)  # fmt: skip
def test_types_of_contractions(dtype: str, data: str, weight: str, out: str) -> None:
    workload = operators.build("matmul", M=2, N=3, K=4, dtype=dtype)
    assert [t.dtype for t in workload.inputs] == [data, weight]
    assert workload.output_tensors[0].dtype == out


def test_every_operator_takes_every_type_it_lists() -> None:
    sizes = {"M": 2, "N": 3, "K": 2, "B": 2, "L": 5, "D": 4, "H": 4, "W": 4, "C": 2, "CI": 2,
             "CO": 2, "batch": 1, "seq": 3, "heads": 2, "dim": 2, "S": 3, "I": 3, "V": 6,
             "groups": 1}  # fmt: skip
    for op in operators.OPERATORS.values():
        given = {p.name: sizes[p.name] for p in op.params if p.default is None}
        for dtype in op.dtypes:
            workload = operators.build(op.name, given, dtype=dtype)
            validate(workload.normalised())
            assert Workload.from_json(workload.to_json()) == workload


def test_constant_operands_are_marked_and_part_of_the_key() -> None:
    shape = {"M": 2, "N": 3, "K": 4}
    packed = operators.build("matmul", shape, constant="b")
    assert [t.constant for t in packed.inputs] == [False, True]
    assert packed.key != operators.build("matmul", shape).key
    with pytest.raises(WorkloadError, match="constant=W: the inputs are A, B"):
        operators.build("matmul", shape, constant="W")


def test_padding_is_not_useful_work() -> None:
    plain = operators.build("conv2d_nhwc", {"H": 4, "W": 4, "CI": 1, "CO": 1, "K": 3, "pad": 1})
    # 4 rows: 2 + 3 + 3 + 2 taps inside, the same for columns.
    assert plain.flops == 2 * 16 * 9
    assert useful_flops(plain) == 2 * 10 * 10


def test_a_spelling_is_case_insensitive_and_has_one_canonical_form() -> None:
    workload = parse_workload(" MatMul:m=8, n=16 ,k=4 ,DTYPE=F64,epilogue=bias_relu")
    assert workload.name == "matmul:M=8,N=16,K=4,dtype=f64,epilogue=bias+relu"
    conv = parse_workload("conv2d_nhwc:H=8,W=8,CI=4,CO=4,KH=3,KW=1,pad_h=1,stride=1")
    assert conv.name == "conv2d_nhwc:N=1,H=8,W=8,CI=4,CO=4,KH=3,KW=1,pad_h=1,pad_w=0"
    assert conv == operators.conv2d_nhwc(H=8, W=8, CI=4, CO=4, KH=3, KW=1, pad_h=1)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("matmull:M=1,N=1,K=1", "unknown_operator", "did you mean matmul"),
        ("xyz:M=1", "unknown_operator", "operators: matmul, "),
        ("", "bad_spelling", "no workload given"),
        ("matmul", "missing_parameter", "parameter M is missing; parameters: M, N, K, dtype=f32"),
        ("matmul:M=1,N=2", "missing_parameter", "parameter K is missing"),
        ("conv2d_nhwc:H=8,W=8,CI=1,CO=1", "missing_parameter", r"K \(or KH, KW\) is missing"),
        ("conv2d_nhwc:H=8,W=8,CI=1,CO=1,KH=1", "missing_parameter", r"K \(or KH, KW\)"),
        ("conv2d_nhwc:H=8,W=8,CI=1,CO=1,K=1,strid=2", "unknown_parameter", "did you mean stride"),
        ("matmul:M=1,N=2,K=3,Q=4", "unknown_parameter", "no parameter 'q'.*parameters: M, N, K"),
        ("matmul:M=1,N=2,K=3,m=4", "duplicate", "m is given twice"),
        ("matmul:M=0,N=2,K=3", "bad_extent", r"M must be 1\.\.2147483647, got 0"),
        ("matmul:M=-1,N=2,K=3", "bad_extent", "got -1"),
        ("matmul:M=2147483648,N=2,K=3", "bad_extent", "got 2147483648"),
        ("matmul:M=1e3,N=2,K=3", "bad_extent", "M must be an integer, got '1e3'"),
        ("matmul:M=" + "9" * 5000 + ",N=2,K=3", "bad_extent", "must be an integer"),
        ("matmul:M=2000000000,N=2000000000,K=2000000000", "too_large", "at most 281474976710656"),
        ("matmul:M,N=2,K=3", "bad_spelling", "NAME=VALUE, got 'M'"),
        ("matmul:M=1,N=2,K=3,dtype=f128", "bad_dtype", "must be one of f32, f64, .* got 'f128'"),
        ("softmax_mn:M=1,N=2,dtype=i32", "bad_dtype", "must be one of f32, f64, bf16"),
        ("matmul:M=1,N=2,K=3,epilogue=bais", "unknown_epilogue", "did you mean bias"),
        ("matmul:M=1,N=2,K=3,epilogue=relu+relu", "duplicate", "relu is given twice"),
        ("matmul:M=1,N=2,K=3,epilogue=requant", "bad_dtype", "requant is for integers"),
        ("matmul:M=1,N=2,K=3,dtype=i32,epilogue=gelu", "bad_dtype", "gelu is for floats"),
        ("softmax_mn:M=1,N=2,epilogue=bias", "unknown_epilogue", "takes no epilogue"),
        ("conv2d_nhwc:H=2,W=8,CI=1,CO=1,K=3", "bad_extent", "window of H spans 3, more than the 2"),
        ("conv2d_nhwc:H=8,W=8,CI=3,CO=4,K=3,groups=2", "bad_extent", "groups=2 must divide CI=3"),
        ("conv2d_transpose_nhwc:H=1,W=1,CI=1,CO=1,K=1,pad=1", "bad_extent", "pad is too large"),
        ("my_ops.py:f", "bad_spelling", "run by the command line only"),
        ("workload.json", "bad_spelling", "files are not read here"),
    ],
)
def test_spelling_mistakes_are_explained(text: str, code: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        parse_workload(text)
    assert caught.value.code == code


def test_files_and_functions_come_through_the_hooks_given() -> None:
    wanted = operators.matmul(M=2, N=3, K=4)
    document = json.dumps(wanted.to_json()).encode()
    assert parse_workload("a/b.json", read_file=lambda path: document) == wanted
    assert parse_workload("ops.py:f", load_function=lambda path, name: wanted) == wanted
    with pytest.raises(WorkloadError, match=r"Write ops.py:FUNCTION"):
        parse_workload("ops.py", load_function=lambda path, name: wanted)
    notation = parse_workload(
        expr="C[i,j] += A[i,k] * B[k,j]", tensors=["A=f32[2,4]", "B=f32[4,3]"], ranges=["k=4"]
    )
    assert notation.key == wanted.key
    with pytest.raises(WorkloadError, match="no expression was given"):
        parse_workload("matmul:M=1", tensors=["A=f32[1]"])


def test_ranges_are_name_and_extent() -> None:
    assert parse_ranges(["r=3", " s = 4 "]) == {"r": 3, "s": 4}
    assert parse_ranges({"r": 3}) == {"r": 3}
    with pytest.raises(WorkloadError, match="a range is NAME=EXTENT"):
        parse_ranges(["r"])
    with pytest.raises(WorkloadError, match="two ranges are given for 'r'"):
        parse_ranges(["r=1", "r=2"])


def test_limits_name_the_numbers() -> None:
    workload = operators.matmul(M=1000, N=1000, K=1000)
    check_limits(workload, max_bytes=12_000_000, max_iterations=10**9)
    with pytest.raises(WorkloadError, match=r"need 12000000 bytes, at most 11999999") as caught:
        check_limits(workload, max_bytes=11_999_999)
    assert caught.value.code == "too_large"
    with pytest.raises(WorkloadError, match=r"evaluates 1000000000 points, at most 999"):
        check_limits(workload, max_bytes=1 << 40, max_iterations=999)


def test_unknown_attributes_are_not_operators() -> None:
    with pytest.raises(AttributeError, match="no operator 'nothing'"):
        _ = operators.nothing
    assert "matmul" in dir(operators)
