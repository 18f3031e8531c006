"""Index notation: what it means, what it infers, and how it explains mistakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tilewright.schedules.algebra.scalar import All, Select
from tilewright.schedules.algebra.text_parser import parse_expression, parse_program
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.frontend.notation import from_notation, parse_tensor_spec
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.workload.tensors import Tensor
from tilewright.schedules.workload.workload import Workload

Specs = Mapping[str, tuple[str, Sequence[int]]]


def f32(**shapes: Sequence[int]) -> dict[str, tuple[str, Sequence[int]]]:
    return {name: ("f32", shape) for name, shape in shapes.items()}


def run(workload: Workload, *arrays: np.ndarray) -> np.ndarray:
    return np.asarray(evaluate(workload, list(arrays))[-1])


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


def test_matmul() -> None:
    workload = from_notation("C[i,j] += A[i,k] * B[k,j]", f32(A=(3, 4), B=(4, 5)))
    a, b = random(3, 4), random(4, 5)
    np.testing.assert_allclose(run(workload, a, b), a @ b, rtol=1e-5)
    assert workload.name == "C[i,j] += A[i,k] * B[k,j]"


def test_the_four_reductions() -> None:
    a = random(3, 4)
    for operator, reference in (
        ("+=", np.sum), ("max=", np.max), ("min=", np.min), ("*=", np.prod),
    ):  # fmt: skip
        found = run(from_notation(f"y[i] {operator} A[i,k]", f32(A=(3, 4))), a)
        np.testing.assert_allclose(found, reference(a, axis=1), rtol=1e-5)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad"), [(9, 3, 1, 1), (10, 3, 2, 1), (7, 5, 3, 2), (6, 2, 2, 0)]
)
def test_a_window_gives_the_usual_output_size(
    size: int, kernel: int, stride: int, pad: int
) -> None:
    workload = from_notation(
        f"Y[h] += X[{stride}*h + r - {pad}] * W[r]", f32(X=(size,), W=(kernel,))
    )
    assert workload.output_tensors[0].shape == ((size + 2 * pad - kernel) // stride + 1,)
    x, w = random(size), random(kernel)
    wide = np.pad(x, pad)
    wanted = [wide[h : h + kernel] @ w for h in range(0, size + 2 * pad - kernel + 1, stride)]
    np.testing.assert_allclose(run(workload, x, w), wanted, rtol=1e-5, atol=1e-6)


def test_reads_outside_are_zero_and_guarded_only_where_needed() -> None:
    workload = from_notation("Y[i] = X[i - 2]", f32(X=(5,)), {"i": 6})
    body = workload.stages[0].body
    assert isinstance(body, Select)
    assert isinstance(body.cond, All)
    assert [str(c) for c in body.cond.conds] == ["i >= 2"]
    np.testing.assert_array_equal(
        run(workload, np.arange(1, 6, dtype=np.float32)), [0, 0, 1, 2, 3, 4]
    )


def test_statements_build_on_each_other_and_unread_tensors_are_outputs() -> None:
    workload = from_notation(
        "m[i] max= X[i,j]; e[i,j] = exp(X[i,j] - m[i]); s[i] += e[i,j]; Y[i,j] = e[i,j] / s[i];",
        f32(X=(3, 4)),
    )
    assert workload.outputs == ("Y",)
    x = random(3, 4)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(run(workload, x), e / e.sum(1, keepdims=True), rtol=1e-5)
    two = from_notation("a[i] = X[i] + 1; b[i] = X[i] * 2", f32(X=(3,)))
    assert two.outputs == ("a", "b")


def test_inputs_keep_the_order_of_declaration() -> None:
    workload = from_notation("C[i] = A[i] + B[i]", f32(B=(2,), A=(2,)))
    assert [t.name for t in workload.inputs] == ["B", "A"]


def test_a_tensor_declared_and_written_states_the_output() -> None:
    specs: Specs = {"A": ("i8", (4,)), "C": ("f32", (2, 4))}
    workload = from_notation("C[i,j] = f32(A[j])", specs)
    assert workload.output_tensors == (Tensor("C", (2, 4), DType.F32),)
    narrowed = from_notation("C[i] = A[i] * 2", {"A": ("f32", (4,)), "C": ("bf16", (4,))})
    assert narrowed.output_tensors[0].dtype is DType.BF16


def test_where_takes_index_and_value_conditions() -> None:
    workload = from_notation(
        "Y[i,j] = where(i >= j && !(X[i,j] < 0) && i != 2, X[i,j], -inf)", f32(X=(4, 4))
    )
    x = random(4, 4)
    i, j = np.indices((4, 4))
    wanted = np.where((i >= j) & ~(x < 0) & (i != 2), x, -np.inf)
    np.testing.assert_array_equal(run(workload, x), wanted)


def test_words_and_chains_read_like_mathematics() -> None:
    tall = from_notation("Y[i] = where(0 < i < 3 or not i <= 4, X[i], 0.5)", f32(X=(6,)))
    x = np.arange(10, 16, dtype=np.float32)
    np.testing.assert_array_equal(run(tall, x), [0.5, 11, 12, 0.5, 0.5, 15])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(X[i] < 2) == (X[i] > 0)", [False, True, False, False]),
        ("(X[i] < 2) != (i > 0)", [True, False, True, True]),
        ("(X[i] < 3 && i > 0) == (X[i] > 1)", [True, False, True, False]),
        ("0 < (X[i] < 2) <= 1", [True, True, False, False]),
        ("0 < X[i] < 3 == X[i]", [False, False, False, False]),
    ],
)
def test_comparisons_in_parentheses_are_bools(text: str, expected: list[bool]) -> None:
    """Only comparisons without parentheses chain."""
    workload = from_notation(f"Y[i] = {text}", f32(X=(4,)))
    np.testing.assert_array_equal(run(workload, np.arange(4, dtype=np.float32)), expected)


def test_max_pooling_pads_with_where() -> None:
    workload = from_notation(
        "Y[h] max= where(0 <= 2*h + r - 1 && 2*h + r - 1 < 7, X[2*h + r - 1], -inf)",
        f32(X=(7,)),
        {"r": 3},
    )
    (stage,) = workload.stages
    select = stage.body
    assert isinstance(select, Select)
    assert not isinstance(select.on_true, Select), "the condition given is guard enough"
    x = -np.arange(1, 8, dtype=np.float32)
    np.testing.assert_array_equal(run(workload, x), [-1, -2, -4, -6])


def test_numbers_fold_and_take_the_type_they_meet() -> None:
    workload = from_notation("Y[i] = X[i] * (1/4) + -2.5e-1 + min(X[i], 3, 2*4)", f32(X=(3,)))
    x = np.array([1, 2, 8], np.float32)
    np.testing.assert_allclose(run(workload, x), x / 4 - 0.25 + np.minimum(x, 3))
    assert from_notation("Y[i] = X[i] + 1", {"X": ("i8", (3,))}).output_tensors[0].dtype == "i32"


def test_an_index_may_be_used_as_a_value() -> None:
    workload = from_notation("Y[i,j] = X[j] * (i + 1) + f32(j)", f32(X=(3,)), {"i": 2})
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(run(workload, x), [[1, 2, 3], [2, 3, 4]])
    assert from_notation("Y[i] = i // 2", {}, {"i": 4}).output_tensors[0].dtype == "i32"


def test_division_and_remainder_in_indices() -> None:
    up = from_notation("Y[i] = X[i // 2]", f32(X=(3,)))
    assert up.output_tensors[0].shape == (6,)
    wrapped = from_notation("Y[i] = X[i % 3]", f32(X=(3,)), {"i": 7})
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(run(up, x), [1, 1, 2, 2, 3, 3])
    np.testing.assert_array_equal(run(wrapped, x), [1, 2, 3, 1, 2, 3, 1])


def test_every_tensor_that_is_not_declared_is_named_at_once() -> None:
    with pytest.raises(WorkloadError, match="shape of A, B are not known; give them with") as e:
        from_notation("T[i,j] += A[i,k] * B[k,j,0]; C[i] += T[i,j] * A[i,j]", {})
    assert "--tensor A=f32[EXTENT,EXTENT] --tensor B=f32[EXTENT,EXTENT,EXTENT]" in str(e.value)


@pytest.mark.parametrize("terms", [2, 55, 56, 57, 58, 113, 400])
@pytest.mark.parametrize("sign", ["+", "-"])
def test_a_sum_has_any_number_of_terms(terms: int, sign: str) -> None:
    text = "C[i] = " + sign.join(f"X[i]*{n}" for n in range(1, terms + 1))
    workload = from_notation(text, f32(X=(3,)))
    assert Workload.from_json(workload.to_json()).key == workload.key
    rest = sum(range(2, terms + 1))
    expected = 1 + rest if sign == "+" else 1 - rest
    np.testing.assert_array_equal(run(workload, np.ones(3, np.float32)), np.full(3, expected))


@pytest.mark.parametrize(
    ("text", "instead", "expected"),
    [
        ("x >> 2", "i32(floor(f64(X[i]) / 4))", lambda x: x >> 2),
        ("x & 7", "X[i] - 8*i32(floor(f64(X[i]) / 8))", lambda x: x & 7),
        ("x // 3", "i32(floor(f64(X[i]) / 3))", lambda x: x // 3),
        ("x % 3", "X[i] - 3*i32(floor(f64(X[i]) / 3))", lambda x: x % 3),
        ("~x", "-X[i] - 1", lambda x: ~x),
    ],
)
def test_what_errors_say_to_write_instead_is_right(
    text: str, instead: str, expected: Callable[[Any], Any]
) -> None:
    x = np.array([-(2**31), -9, -8, -7, -1, 0, 1, 6, 7, 8, 2**31 - 1], np.int32)
    workload = from_notation(f"C[i] = {instead}", {"X": ("i32", x.shape)})
    np.testing.assert_array_equal(run(workload, x), expected(x), err_msg=text)


def test_the_comparison_that_stands_for_a_gather_is_one() -> None:
    workload = from_notation(
        "C[i] += where(B[i] == k, A[k], 0)", {"A": ("f32", (5,)), "B": ("i32", (7,))}
    )
    a, b = np.arange(5, dtype=np.float32) + 1, np.array([4, 0, 0, 2, 3, 1, 4], np.int32)
    np.testing.assert_array_equal(run(workload, a, b), a[b])


def test_a_single_value_has_the_index_0() -> None:
    workload = from_notation("s[0] += X[i]; Y[i] = X[i] / s[0]", f32(X=(4,)))
    x = np.array([1, 2, 3, 4], np.float32)
    np.testing.assert_allclose(run(workload, x), x / 10, rtol=1e-6)


def test_a_given_range_wins_over_shapes() -> None:
    workload = from_notation("y[i] += A[i,k] * B[k,i]", f32(A=(2, 5), B=(6, 2)), {"k": 4})
    assert workload.stages[0].reduce_axes[0].extent == 4


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("C[i,j] += A[i,k] * B[k,j", "bad_syntax", "expected ',' or ']', found the end"),
        ("C[i,j] +== A[i,k]", "bad_syntax", "expected a value, found '='"),
        ("C[i,j] = ", "bad_syntax", "expected a value, found the end"),
        ("C[i] = A[i,0] $ 2", "bad_syntax", r"unexpected character '\$'\n.*\n +\^"),
        ("", "bad_syntax", "nothing is computed"),
        (" ; ;", "bad_syntax", "nothing is computed"),
        ("C 3", "bad_syntax", "expected '=', '\\+=', '\\*=', 'max=' or 'min=', found '3'"),
        ("C(i) = 3", "bad_syntax", r"expected '\[' or an assignment, found '\('"),
        ("C[i] max A[i,0]", "bad_syntax", "expected '=', found 'A'"),
        ("C[i] = A[i,0] B[i,0]", "bad_syntax", "expected ';', found 'B'"),
        ("C[i] = A[i,0] + 1e999", "bad_syntax", "beyond the range of f64"),
        ("C[i] = " + "9" * 50, "bad_syntax", "too long"),
        ("C[i] = " + "(" * 70 + "1" + ")" * 70, "too_deep", "nested more than 56 levels"),
        ("C[i] = A[i,0]" + "*2.0" * 70, "too_deep", "use several statements"),
        ("C[i] = A[i,0] >> 2", "bad_dtype", r"shift_right of f32: only integers.*\n.*\n +\^"),
        ("C[i] = ~A[i,0]", "bad_dtype", "bit_xor of f32: only integers"),
        ("C[i] = A[i,0]^2", "bad_dtype", "a power is x \\*\\* 2"),
        ("C[i] = where(i & 3, A[i,0], 0)", "bad_node", "needs a condition, such as i >= j, or a"),
        ("C[i] = A[i,0] + (1 << 70)", "bad_constant", "shift by 0 to 63 bits"),
        ("C[i] = A[i,0] + (1.5 & 3)", "bad_constant", "& needs integers"),
        ("C[i] = " + " " * 20000, "too_large", "at most 16384"),
        ("C[i,j] += A[i,k] * B[k,j]; C[i,j] = A[i,j]", "duplicate", "written twice"),
        ("C[i] = C[i] + A[i,0]", "unknown_tensor", "read where it is computed"),
        ("C[i,j] = A[i,k] * B[k,j]", "unknown_axis", "'k' is not an index of C; reduce over it"),
        ("C[i,k] += A[i,k]", "bad_reduction", "nothing to reduce"),
        ("C[i,j] += A[i,k] * Z[k,j]", "unknown_tensor",
         r"type and shape of Z are not known; declared: A, B; .*--tensor Z=f32\[EXTENT,EXTENT\]"),
        ("C[i] = D[i]; D[i] = A[i,0]", "unknown_tensor", "unknown tensor 'D'; declared.*A, B"),
        ("C[i] += A[i,k,k]", "bad_rank", r"A has 2 dimensions \[4, 5\], got 3 indices"),
        ("C[i] = A", "bad_rank", r"tensor A needs indices: A\[...\]"),
        ("C[] = A[i,k]", "unknown_axis", "is not an index of C"),
        ("C[i,i] = A[i,i]", "bad_index", "distinct index names"),
        ("C[i+1] = A[i,0]", "bad_index", "distinct index names"),
        ("C[0,0] += A[i,k]", "bad_index", "only one index may be 0"),
        ("C[i] = A[i,q] + q", "unknown_axis", "'q' is not an index of C"),
        ("C[i,q] = A[i,0]", "unknown_range", r"range of index 'q' is not known.*--range q=EXTENT"),
        ("C[i] += A[i+r, s]", "unknown_range", "'i' is not known: it is only used in i . r"),
        ("C[i] += A[i, k] * A[k, 0]", "shape_clash",
         "index 'k' has the extent 5 from dimension 1 of A, but 4 from dimension 0 of A"),
        ("C[i,j] += A[i,k] * B[j,k]", "shape_clash",
         "index 'k' has the extent 5 from dimension 1 of A, but 6 from dimension 1 of B"),
        ("C[i] = A[i*j, 0]", "bad_index", "product of two index variables"),
        ("C[i] = A[A[i,0], 0]", "bad_index", "or it is a value of integers"),
        ("C[i] = A[i/2, 0]", "bad_index", "an index is made of variables"),
        ("C[i] = A[i//0, 0]", "bad_index", "constant integer >= 1"),
        ("C[i] = A[i, 1.5]", "bad_index", "an index has integers"),
        ("C[i] = A[i,0] // 2", "bad_dtype", "floor_div of f32: only integers have it"),
        ("C[i] = i32(A[i,0]) / 2", "bad_dtype", "only floats divide; cast first, as in i32"),
        ("C[i] = i / 2 + A[i,0]", "bad_node", "/ divides values"),
        ("C[i] = A[i,0] + (1 < 2)", "bad_node", "comparison of two numbers"),
        ("C[i] = where(A[i,0], 1, 0)", "bad_node", "needs a condition"),
        ("C[i] = where(i > 0, A[i,0])", "bad_node", "where takes 3 values, got 2"),
        ("C[i] = max(A[i,0])", "bad_node", "max takes two values or more"),
        ("C[i] = exp(A[i,0], 1)", "bad_node", "exp takes 1 values, got 2"),
        ("C[i] = sum(A[i,0])", "unknown_function", r"a sum needs a separate statement"),
        ("C[i] = frob(A[i,0])", "unknown_function", "unknown function 'frob'; choices: abs"),
        ("C[i] = A[i,0] + 1/0", "bad_constant", "division by zero"),
        ("C[i] = A[i,0] + 1.5 % 2", "bad_constant", "% needs integers"),
        ("C[i] = A[i,0] + 1e300*1e300", "bad_constant", "too large"),
        ("C[i] = A[i,0] + (inf - inf)", "bad_constant", "a constant is a number"),
        ("C[i] = A[i,0] * i32(A[i,1])", "dtype_clash", "mul of f32 and i32"),
    ],
)  # fmt: skip
def test_mistakes_are_explained(text: str, code: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        from_notation(text, f32(A=(4, 5), B=(5, 6)))
    assert caught.value.code == code


def test_unread_tensors_and_unknown_ranges_are_mistakes() -> None:
    with pytest.raises(WorkloadError, match="input 'B' is never read"):
        from_notation("C[i] = A[i]", f32(A=(4,), B=(4,)))
    with pytest.raises(WorkloadError, match="a range is given for 'z'"):
        from_notation("C[i] = A[i]", f32(A=(4,)), {"z": 3})
    with pytest.raises(WorkloadError, match=r"range 'i': an extent must be 1\.\."):
        from_notation("C[i] = A[i]", f32(A=(4,)), {"i": 0})
    with pytest.raises(WorkloadError, match=r"declared as \[4\], it is \[3\]"):
        from_notation("C[i] = A[i]", f32(A=(4,), C=(4,)), {"i": 3})
    with pytest.raises(WorkloadError, match="declared with 2 dimensions, got 1 indices"):
        from_notation("C[i] = A[i]", f32(A=(4,), C=(4, 4)))
    with pytest.raises(WorkloadError, match="window is larger than the tensor"):
        from_notation("Y[h] += X[h + r] * W[r]", f32(X=(3,), W=(5,)))
    with pytest.raises(WorkloadError, match="declared twice"):
        from_notation("C[i] = A[i]", [Tensor("A", (4,), DType.F32)] * 2)


def test_the_caret_points_at_the_place() -> None:
    with pytest.raises(WorkloadError) as caught:
        from_notation("C[i] = A[i];\nD[i] = A[i] + Q[i]", f32(A=(4,)))
    line, caret = str(caught.value).splitlines()[1:]
    assert line[caret.index("^")] == "Q"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("A=f32[512,512]", Tensor("A", (512, 512), DType.F32)),
        (" B = const u8[ 3 ]", Tensor("B", (3,), DType.U8, constant=True)),
        ("X:bf16[1,2,3]", Tensor("X", (1, 2, 3), DType.BF16)),
    ],
)
def test_tensor_specs(text: str, wanted: Tensor) -> None:
    assert parse_tensor_spec(text) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A", r"a tensor is written NAME=dtype\[extent,...\]"),
        ("A=f32[2", "a tensor is written"),
        ("A=f32[x]", "an extent is a positive integer, got 'x'"),
        ("A=f32[0]", r"must be 1\.\."),
        ("A=f128[2]", "unknown element type 'f128'"),
        ("2=f32[2]", "must be a letter"),
        ("A=f32[99999999999]", r"must be 1\.\.2147483647"),
    ],
)
def test_bad_tensor_specs(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        parse_tensor_spec(text)


def test_precedence_is_that_of_python() -> None:
    assert str(parse_expression("a+b*c")) != str(parse_expression("(a+b)*c"))
    (statement,) = parse_program("C[i] = -A[i] * 2 + 3")
    assert statement.value.op == "+"  # type: ignore[union-attr]  # it is an Infix


def test_reversed_and_known_indices() -> None:
    flipped = from_notation("Y[i] = X[4 - i]", f32(X=(5,)))
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(run(flipped, x), x[::-1])
    causal = from_notation("Y[i] += X[i - k] * W[k]", f32(X=(5,), W=(3,)))
    np.testing.assert_array_equal(
        run(causal, x, np.ones(3, np.float32)), np.convolve(x, np.ones(3))
    )
    plus = from_notation("Y[i] = relu(+X[i])", f32(X=(5,)))
    np.testing.assert_array_equal(run(plus, -x), np.zeros(5))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("C[i] - A[i]", "expected '=', '\\+=', '\\*=', 'max=' or 'min=', found '-'"),
        ("C[i] = A[inf]", "an index is made of index names and integers"),
        ("C[i] = A[i*99999999999]", "within \\+-2147483647"),
        ("C[i] = A[i*2000000000*2]", "within \\+-2147483647"),
        (
            "C[i] = A[" + "+".join(f"i%{n}" for n in range(2, 40)) + "]",
            "at most 24 different terms",
        ),
        ("C[i] = A[i] + 9999999999 * 9999999999", "the number is too large"),
    ],
)
def test_more_mistakes_are_explained(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        from_notation(text, f32(A=(4,)), {"i": 4})


def test_bits_of_tests_of_indices_are_one_conjunction() -> None:
    """A band that is written with & has the key, and so the schedules, of one that is written with
    &&: loops are limited by tests of indices, not by bits."""
    tensors = f32(A=(5, 5), B=(5, 3))
    found, wanted = (
        from_notation(f"C[i,j] += where({cond}, A[i,k], 0.0)*B[k,j]", tensors)
        for cond in ("(k <= i + 1) & (i <= k + 1) & (k > 0)", "k <= i + 1 && i <= k + 1 && k > 0")
    )
    assert found.key == wanted.key


@pytest.mark.parametrize(("op", "apply"), [("|", np.logical_or), ("^", np.logical_xor)])
def test_other_bits_of_many_tests_stay_bits(op: str, apply: np.ufunc) -> None:
    """As branches, 20 of them would have 2**20 paths."""
    cond = f" {op} ".join(f"((i >= {n}) {op} (X[i] > {n}.5))" for n in range(20))
    x = np.arange(30, dtype=np.float32)[::-1].copy()
    i = np.arange(30)
    wanted = apply.reduce([apply(i >= n, x > n + 0.5) for n in range(20)])
    found = run(from_notation(f"Y[i] = where({cond}, X[i], 0.0)", f32(X=(30,))), x)
    np.testing.assert_array_equal(found, np.where(wanted, x, 0))


def test_a_conjunction_of_many_alternatives_stays_bits() -> None:
    cond = " & ".join(f"((i >= {n}) | (X[i] > {n}.5))" for n in range(20))
    x = np.arange(30, dtype=np.float32)[::-1].copy()
    i = np.arange(30)
    wanted = np.logical_and.reduce([(i >= n) | (x > n + 0.5) for n in range(20)])
    found = run(from_notation(f"Y[i] = where({cond}, X[i], 0.0)", f32(X=(30,))), x)
    np.testing.assert_array_equal(found, np.where(wanted, x, 0))
