"""Short workloads and what tests of single primitives need: meaning kept, step by step."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy.typing as npt

from tests.support.interpreter.interpret import interpret_for
from tilewright.schedules.frontend.notation import from_notation, parse_tensor_spec
from tilewright.schedules.lowering.lower import clean, plain_nest
from tilewright.schedules.nest.loop_ir import Nest, loops
from tilewright.schedules.nest.verify_bounds import unproven_accesses
from tilewright.schedules.nest.verify_nest import verify
from tilewright.schedules.primitives import Primitive
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.judge.compare import Case
from tilewright.tuner.judge.oracle import Oracle


def notation(text: str, ranges: dict[str, int] | None = None, **tensors: str) -> Workload:
    """A workload in index notation: `notation("C[i] = A[i]", A="f32[4]")`."""
    return from_notation(
        text, [parse_tensor_spec(f"{name}={spec}") for name, spec in tensors.items()], ranges
    )


def matmul(m: int = 7, n: int = 6, k: int = 5, dtype: str = "f32") -> Workload:
    return notation("C[i,j] += A[i,k] * B[k,j]", A=f"{dtype}[{m},{k}]", B=f"{dtype}[{k},{n}]")


def bias_relu(m: int = 7, n: int = 6, k: int = 5) -> Workload:
    """A product and an elementwise stage that reads it: stages s0 and s1."""
    return notation(
        "D[i,j] += A[i,k] * B[k,j]; C[i,j] = max(D[i,j] + b[j], 0)",
        A=f"f32[{m},{k}]", B=f"f32[{k},{n}]", b=f"f32[{n}]",
    )  # fmt: skip


def softmax(m: int = 5, n: int = 9) -> Workload:
    """Stages s0 (maximum), s1 (exponential), s2 (sum), s3 (quotient)."""
    return notation(
        "M[i] max= X[i,j]; E[i,j] = exp(X[i,j] - M[i]); S[i] += E[i,j]; Y[i,j] = E[i,j] / S[i]",
        X=f"f32[{m},{n}]",
    )


def convolution(h: int = 5, w: int = 4, ci: int = 3, co: int = 4) -> Workload:
    return notation(
        "Y[h,w,o] += X[h+r-1,w+s-1,c] * W[r,s,c,o]",
        X=f"f32[{h},{w},{ci}]", W=f"f32[3,3,{ci},{co}]",
    )  # fmt: skip


def applied(workload: Workload, *steps: Primitive) -> Nest:
    """The nest after `steps`, which has been shown to be well formed, in bounds and right, before
    and after it is cleaned up."""
    nest = Trace(steps).apply(plain_nest(workload))
    check_meaning(workload, nest)
    return nest


@lru_cache(maxsize=8)
def quick_case(workload: Workload) -> Case:
    """Inputs of a workload, and what must come out."""
    return Oracle(workload).quick


def check_meaning(workload: Workload, nest: Nest) -> None:
    """AssertionError or an error of verifier and interpreter if `nest` does not compute
    `workload`."""
    case, cleaned = quick_case(workload), clean(nest)
    for form in (nest,) if cleaned == nest else (nest, cleaned):
        verify(form)
        assert not unproven_accesses(form)
        problem = case.check(interpret_for(workload, form, list(case.inputs)))
        assert problem is None, problem


def outputs_of(workload: Workload, nest: Nest) -> list[npt.NDArray[Any]]:
    return interpret_for(workload, nest, list(quick_case(workload).inputs))


def loop_names(nest: Nest) -> list[str]:
    return [loop.var for loop in loops(nest.body)]
