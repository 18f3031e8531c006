"""First halves of long chains are written early: the order, and that it changes no value."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.paths import example_target
from tests.support.schedule_fuzz.check import Pair, check_pair, run_kernel, this_machine
from tests.support.schedules.workloads import notation
from tilewright.schedules.algebra.scalar import UnaryOp
from tilewright.schedules.dtypes import DType
from tilewright.schedules.primitives import CacheWrite, Primitive, Reorder, Split, Unroll, Vectorize
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.codegen import overlap
from tilewright.tuner.codegen.mathlib import is_math_function, math_function
from tilewright.tuner.codegen.overlap import LineGroup, Statements, flat, in_halves, in_order
from tilewright.tuner.emit.kernel import compile_kernel, llvm_text
from tilewright.tuner.judge.compare import Case
from tilewright.tuner.judge.input_plan import InputKind

ZNVER5 = example_target("znver5")


def statements(count: int, kept: int = 2) -> list[LineGroup]:
    """`count` statements of two halves each."""
    pieces = [LineGroup()]
    for n in range(count):
        pieces.append(LineGroup([f"  %a{n} = load {n}"], True, kept))
        pieces.append(LineGroup([f"  %b{n} = use %a{n}", f"  store %b{n}"]))
    return pieces


def written(pieces: list[LineGroup], registers: int = 32) -> str:
    """The order of the first (a) and second halves (b)."""
    return " ".join(re.findall(r"^  %(\w+) =", "\n".join(flat(in_order(pieces, registers))), re.M))


def test_first_halves_are_written_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "MOST_AHEAD", 2)
    assert written(statements(4)) == "a0 a1 a2 b0 a3 b1 b2 b3"
    assert written(statements(1)) == "a0 b0"


def test_no_earlier_than_registers_allow() -> None:
    spare = overlap.REGISTERS_FOR_OTHERS
    assert written(statements(3, kept=4), spare + 7) == "a0 b0 a1 b1 a2 b2"
    assert written(statements(3, kept=4), spare + 8) == "a0 a1 b0 a2 b1 b2"
    sums = LineGroup(["  store %a0, ptr %slot1", "  store %a0, ptr %slot22"])
    assert written([*statements(3, kept=4), sums], spare + 9) == "a0 b0 a1 b1 a2 b2"


def test_a_first_half_waits_for_its_operands() -> None:
    pieces = statements(3)
    pieces[3].lines.append("  %c = use %b0")
    assert written(pieces) == "a0 b0 a1 c a2 b1 b2"


def chains(count: int, cuts: int, kept: int = 2) -> list[LineGroup]:
    """`count` statements of `cuts` heads, a to c, and the last part z."""
    pieces = [LineGroup()]
    for n in range(count):
        before = f"{n}"
        for head in "abc"[:cuts]:
            pieces.append(LineGroup([f"  %{head}{n} = use %{before}"], True, kept))
            before = f"{head}{n}"
        pieces.append(LineGroup([f"  %z{n} = use %{before}", f"  store %z{n}"]))
    return pieces


def test_parts_of_several_statements_alternate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "MOST_AHEAD", 2)
    assert written(chains(4, 2)) == "a0 b0 a1 b1 a2 z0 b2 a3 z1 b3 z2 z3"
    assert written(chains(1, 3)) == "a0 b0 c0 z0"


def test_fewer_cuts_where_registers_are_few() -> None:
    spare = overlap.REGISTERS_FOR_OTHERS
    whole = written(chains(3, 3), 0)
    assert whole == "a0 b0 c0 z0 a1 b1 c1 z1 a2 b2 c2 z2"
    assert written(chains(3, 3, kept=3), spare + 5) == whole
    assert written(chains(3, 3, kept=3), spare + 9) == "a0 b0 a1 b1 a2 c0 z0 b2 c1 z1 c2 z2"
    assert written(chains(3, 3, kept=3), spare + 12) == "a0 b0 c0 a1 b1 a2 c1 b2 z0 c2 z1 z2"


def test_a_branch_is_no_first_half() -> None:
    sequence = Statements(0, frozenset({"Y"}))
    lines = sequence.begin(frozenset({"X"}))
    lines.extend(["  br i1 %c1, label %then2, label %done3", "then2:"])
    assert sequence.divisible
    sequence.divide(1)
    assert not any(piece.is_head for piece in sequence.pieces)
    for _ in range(overlap.MOST_CUTS - 1):
        assert sequence.divisible
        sequence.divide(1)
    assert not sequence.divisible
    sequence.begin(frozenset({"X", "Y"}))
    assert not sequence.divisible  # it reads what others of the sequence write


@pytest.mark.parametrize("op", [op for op in UnaryOp if is_math_function(op)])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_halves_are_the_whole(op: UnaryOp, dtype: DType) -> None:
    function = math_function(op, dtype, 16, ZNVER5)
    halves = in_halves(function.lines, function.result)
    assert (*halves.first, *halves.second) == function.lines
    assert 0 <= halves.live_registers <= 6 * max(op.function.calls, 1)
    if op is UnaryOp.EXP and dtype is DType.F32:  # n, its table's entry, what is left of x
        assert (len(halves.first), halves.live_registers) == (
            6,
            3,
        )


def unrolled(lanes: int, copies: int) -> tuple[Primitive, ...]:
    steps = (Split("s0.d0", lanes * copies), Split("s0.d0i", lanes))
    return (*steps, Vectorize("s0.d0ii"), Unroll("s0.d0io"))


def exponentials(text: str) -> list[str]:
    """What exp does in each half, in order: its first reads a table, its second scales."""
    body = text.split("define i32 @kernel")[1]
    return re.findall(r"call <16 x float> @llvm\.x86\.avx512\.(permvar|mask\.scalef)", body)


def test_an_unrolled_exponential_overlaps_with_others() -> None:
    workload = notation("Y[i] = exp(A[i])", A="f32[512]")
    text = llvm_text(workload, Trace(unrolled(16, 8)), ZNVER5)
    head, tail = "permvar", "mask.scalef"
    assert exponentials(text) == [*[head] * 5, *[tail, head] * 3, *[tail] * 5]
    few = replace(ZNVER5, vector_registers=16)
    assert exponentials(llvm_text(workload, Trace(unrolled(16, 8)), few)) == [head, tail] * 8


FUNCTIONS = {
    "one": "Y[i] = exp(A[i])",
    "a function of a function": "Y[i] = log(exp(A[i]) + 1.0)",
    "with other operands": "Y[i] = tanh(A[i]*2.0) * B[i] + A[i]",
    "two beside each other": "Y[i] = erf(A[i]) - sigmoid(B[i])",
    "under a condition": "Y[i] = where(A[i] > 0.0, exp(B[i]), log(A[i]*A[i]))",
    "of what is the same everywhere": "Y[i] = exp(B[3]) * exp(A[i])",
    "a chain of functions": "Y[i] = tanh(log1p(exp(tanh(A[i]) * B[i])))",
    "with equal operands": "Y[i] = where(exp(A[i]) > 2.0, tanh(exp(A[i])), exp(A[i]) + B[i])",
}


@pytest.mark.parametrize("text", FUNCTIONS.values(), ids=list(FUNCTIONS))
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("extent", [512, 437])
def test_values_of_unrolled_functions(text: str, dtype: str, extent: int) -> None:
    tensors = {name: f"{dtype}[{extent}]" for name in "AB" if f"{name}[" in text}
    workload = notation(text, {}, **tensors)
    for lanes, bits in ((16, 512), (8, 512), (8, 256), (1, 512)):
        check_pair(Pair("overlap", workload, Trace(unrolled(lanes, 8)), 1, bits))


SUMS = {
    "sum": "Y[i] += exp(A[k,i])",
    "greatest": "Y[i] max= tanh(A[k,i])",
    "sum of products": "Y[i] += exp(A[k,i])*A[k,i]",
    "sum under a condition": "Y[i] += where(A[k,i] > 0.0, exp(A[k,i])*A[k,i], 0.0)",
}


@pytest.mark.parametrize("text", SUMS.values(), ids=list(SUMS))
@pytest.mark.parametrize("register", [True, False])
def test_sums_of_unrolled_functions(text: str, register: bool) -> None:
    """Copies add to sums of their own, or all of them to the same."""
    workload = notation(text, A="f32[40,150]")
    kept = (CacheWrite("s0", "s0.d0o", "w", register=True),) if register else ()
    own = (
        *(Split("s0.d0", 128), Split("s0.d0i", 16)),
        *(Reorder(("s0.d0o", "s0.r0", "s0.d0io", "s0.d0ii")), Vectorize("s0.d0ii")),
        *(Unroll("s0.d0io"), *kept),
    )
    check_pair(Pair("overlap", workload, Trace(own), 1))
    same = (
        *(Split("s0.d0", 16), Split("s0.r0", 8)),
        *(Reorder(("s0.d0o", "s0.r0o", "s0.r0i", "s0.d0i")), Vectorize("s0.d0i")),
        *(Unroll("s0.r0i"), *kept),
    )
    check_pair(Pair("overlap", workload, Trace(same), 1))


def run(workload: Workload, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    kernel = compile_kernel(workload, Trace(unrolled(16, 8)), this_machine())
    case = Case(InputKind.NORMAL, 0, False, (values,), ())
    return np.asarray(run_kernel(kernel, workload, case)[0])


def test_bits_do_not_depend_on_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = notation("Y[i] = exp(A[i]) + erf(A[i])", A="f32[1024]")
    values = np.random.default_rng(5).normal(0, 40, 1024).astype(np.float32)
    values[:6] = [np.nan, np.inf, -np.inf, 0, -0.0, 88.9]
    results = []
    for ahead in (0, 1, 4):
        monkeypatch.setattr(overlap, "MOST_AHEAD", ahead)
        results.append(run(workload, values))
    for result in results[1:]:
        np.testing.assert_array_equal(result.view(np.int32), results[0].view(np.int32))
