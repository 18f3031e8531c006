"""Expressions in no library, as a user might write them: every sketch's default and a few drawn
settings give a kernel that passes the full check."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.tuner.default_kernels import problems
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.sketches import space_for
from tilewright.schedules.spelling import parse_workload
from tilewright.tuner import compile as compile_to_call
from tilewright.tuner.machine.native_target import native_target

EXPRESSIONS: dict[str, tuple[str, str, str]] = {
    "permuted axes": (
        "C[a,d,c,e] += A[a,b,c,k] * B[k,d,b,e]", "A=f32[3,2,5,4] B=f32[4,6,2,19]", ""),
    "both operands turned": ("C[j,i] += A[k,i] * B[j,k]", "A=f32[7,17] B=f32[9,7]", ""),
    "batch last": ("C[i,j,b] += A[i,k,b] * B[k,j,b]", "A=f32[4,3,17] B=f32[3,5,17]", ""),
    "many small products": ("Y[b,i] += R[b,i,k] * X[b,k]", "R=f32[33,3,3] X=f32[33,3]", ""),
    "bilinear": (
        "Y[n,o] += X[n,i] * W[o,i,j] * Z[n,j]", "X=f32[7,9] W=f32[5,9,17] Z=f32[7,17]", ""),
    "quadratic form": ("y[n] += X[n,i] * M[i,j] * X[n,j]", "X=f32[19,9] M=f32[9,9]", ""),
    "diagonal between": (
        "C[i,j] += A[i,k] * d[k] * B[k,j]", "A=f32[33,31] d=f32[31] B=f32[31,35]", ""),
    "diagonals around": (
        "C[i,j] += l[i] * A[i,k] * B[k,j] * r[j]",
        "l=f32[18] A=f32[18,9] B=f32[9,33] r=f32[33]", ""),
    "shifted and scaled weights": (
        "C[i,j] += A[i,k] * (W[k,j] - z[j]) * s[j]",
        "A=f32[13,31] W=f32[31,33] z=f32[33] s=f32[33]", ""),
    "function inside": (
        "C[i,j] += (A[i,k]*sigmoid(A[i,k])) * B[k,j]", "A=f32[21,17] B=f32[17,33]", ""),
    "core and two sides": (
        "Y[a,b] += G[i,j] * A[a,i] * B[b,j]", "G=f32[9,7] A=f32[19,9] B=f32[21,7]", ""),
    "wide numbers": (
        "C[i,j] += A[i,k] * d[k] * B[k,j]", "A=f64[33,31] d=f64[31] B=f64[31,35]", ""),
    "whole numbers": (
        "C[i,j] += A[i,k] * d[k] * B[k,j]", "A=i32[33,31] d=i32[31] B=i32[31,35]", ""),
    "complex product": (
        "R[i,j] += A[i,k]*C[k,j] - B[i,k]*D[k,j]; I[i,j] += A[i,k]*D[k,j] + B[i,k]*C[k,j]",
        "A=f32[9,7] B=f32[9,7] C=f32[7,17] D=f32[7,17]", ""),
    "distances": ("D[i,j] += (A[i,k]-B[j,k])*(A[i,k]-B[j,k])", "A=f32[13,3] B=f32[19,3]", ""),
    "channels first, three steps": (
        "Y[n,o,h,w] += X[n,c,3*h+r-1,3*w+s-2] * W[o,c,r,s]",
        "X=f32[2,5,16,19] W=f32[17,5,5,3]", "h=5 w=6"),
    "channels first, finished": (
        "T[o,h,w] += X[c,2*h+r-1,2*w+s-1] * W[o,c,r,s]; Y[o,h,w] = max(T[o,h,w] + b[o], 0)",
        "X=f32[5,9,11] W=f32[17,5,3,3] b=f32[17]", ""),
    "around a circle": (
        "Y[o,i,j] += X[c,(i+r)%9,(j+s)%8] * W[o,c,r,s]", "X=f32[5,9,8] W=f32[17,5,3,3]",
        "i=9 j=8"),
    "groups first": (
        "Y[g,o,h,w] += X[g,c,h+r-1,w+s-1] * W[g,o,c,r,s]",
        "X=f32[2,3,7,9] W=f32[2,9,3,3,3]", ""),
    "each channel several times": (
        "Y[h,w,c,m] += X[h+r-1,w+s-1,c] * W[r,s,c,m]", "X=f32[7,9,20] W=f32[3,3,20,2]", ""),
    "transposed by three": (
        "Y[o,h,w] += where((h+1-r)%3==0 and (w+1-s)%3==0, X[c,(h+1-r)//3,(w+1-s)//3], 0)"
        " * W[c,o,r,s]", "X=f32[5,4,5] W=f32[5,17,4,4]", "h=11 w=14"),
    "largest of windows": (
        "Y[c,h,w] max= where(0<=2*h+r-1<13 and 0<=2*w+s-1<37, X[c,2*h+r-1,2*w+s-1], -inf)",
        "X=f32[2,13,37]", "r=3 s=3 h=7 w=19"),
    "mean of windows": ("Y[c,h,w] += X[c,3*h+r,3*w+s] * 0.125", "X=f32[2,12,51]",
        "r=3 s=3 h=4 w=17"),
    "long windows, few of them": ("Y[i] += X[2*i+k]", "X=f32[103]", "i=2 k=100"),
    "correlation": ("Y[h,w,d] += F[h,w,c] * G[h,w-d,c]", "F=f32[3,9,5] G=f32[3,9,5]", "d=4"),
    "five points": (
        "Y[i,j] = 0.25*(X[i,j+1]+X[i+2,j+1]+X[i+1,j]+X[i+1,j+2])", "X=f32[9,21]", "i=7 j=19"),
    "middle axis": ("Y[i,k] += X[i,j,k]", "X=f32[5,9,3]", ""),
    "first and last axis": ("Y[j] += X[i,j,k]", "X=f32[5,9,19]", ""),
    "scan of rows": ("S[i,k] = cumsum(X[i,k], k)", "X=f32[13,133]", ""),
    "scan of one row backwards": ("S[k] = cumsum(X[k], k, reverse)", "X=f64[1003]", ""),
    "scan down columns": ("S[k,j] = cumprod(X[k,j], k)", "X=f32[9,77]", ""),
    "exclusive scan of bytes": ("S[i,k] = cumsum(X[i,k], k, exclusive)", "X=u8[6,133]", ""),
    "greatest so far, read across": ("S[i,k] = cummax(X[k,i], k)", "X=f32[40,19]", ""),
    "scan of a narrow last axis": ("S[i,k,c] = cumsum(X[i,k,c], k)", "X=f32[5,31,3]", ""),
    "scans of a product and its use": (
        "T[i,j] += A[i,k]*B[k,j]; Y[i,j] = exp(T[i,j] - cummax(T[i,j], j))"
        " / cumsum(T[i,j]*T[i,j], j)",
        "A=f32[17,9] B=f32[9,35]", ""),
    "sum over a scan": ("Y[i] += cumsum(X[i,k], k) * W[k]", "X=f32[9,65] W=f32[65]", ""),
    "running sums": ("Y[i,j] += where(k<=j, X[i,k], 0)", "X=f32[5,21]", "j=21"),
    "running largest": ("Y[i,j] max= where(k<=j, X[i,k], -inf)", "X=f32[5,37]", "j=37"),
    "running sums of few": ("Y[i,j] += where(k<=j, X[i,k], 0)", "X=f64[9,5]", "j=5"),
    "triangle of a product with itself": (
        "Y[i,j] += where(j<=i, A[i,k]*A[j,k], 0)", "A=f32[35,17]", ""),
    "triangular factor": (
        "Y[i,j] += where(k>=i, U[i,k]*B[k,j], 0)", "U=f32[33,33] B=f32[33,35]", ""),
    "band of whole numbers": (
        "Y[i,j] += where(i-2<=k<=i+3, A[i,k]*B[k,j], 0)", "A=i32[21,19] B=i32[19,33]", ""),
    "window and triangle": (
        "Y[i,j] += where(r<=i, X[i+r-1,j+k]*W[r,k], 0)", "X=f32[11,41] W=f32[3,5]", "i=11 j=37"),
    "compared with a neighbour": (
        "Y[i,j] += where(A[i,k]>B[k,j], A[i,k]*B[k,j], 0)", "A=f32[13,9] B=f32[9,35]", ""),
    "softmax of a triangle": (
        "m[i] max= where(j<=i, A[i,j], -inf); e[i,j] = where(j<=i, exp(A[i,j]-m[i]), 0);"
        " s[i] += e[i,j]; Y[i,j] = e[i,j]/s[i]", "A=f32[19,19]", ""),
    "product of two triangles": (
        "Y[i,j] += where(k<=i, A[i,k], 0)*where(j<=k, B[k,j], 0)", "A=f32[35,35] B=f32[35,35]", ""),
    "lower part of a product": (
        "T[i,j] += A[i,k]*B[k,j]; Y[i,j] = where(j<=i, T[i,j], -inf)", "A=f32[35,9] B=f32[9,35]",
        ""),
    "softmax of causal scores": (
        "S[i,j] += Q[i,k]*K[j,k]; m[i] max= where(j<=i, S[i,j], -inf);"
        " e[i,j] = where(j<=i, exp(S[i,j]-m[i]), 0); s[i] += e[i,j]; Y[i,d] += e[i,j]/s[i]*V[j,d]",
        "Q=f32[35,9] K=f32[35,9] V=f32[35,17]", ""),
    "stored triangle": (
        "P[i,k] = where(k<=i, exp(A[i,k]), 0); Y[i,j] += P[i,k]*B[k,j]",
        "A=f32[35,35] B=f32[35,17]", ""),
    "groups of columns": (
        "S[n,g] += X[n,p,3*g+k]; D[n,g] += (X[n,p,3*g+k]-S[n,g])*(X[n,p,3*g+k]-S[n,g]);"
        " Y[n,p,c] = (X[n,p,c]-S[n,c//3])*rsqrt(D[n,c//3]+1)*w[c]", "X=f32[2,19,21] w=f32[21]",
        "k=3"),
    "groups of planes": (
        "S[n,g] += X[n,3*g+k,p]; Y[n,c,p] = (X[n,c,p]-S[n,c//3])*w[c]", "X=f32[2,9,37] w=f32[9]",
        "k=3"),
    "each plane of all images": (
        "S[c] += X[n,c,p]; D[c] += (X[n,c,p]-S[c])*(X[n,c,p]-S[c]);"
        " Y[n,c,p] = (X[n,c,p]-S[c])*rsqrt(D[c]+1)", "X=f32[5,7,37]", ""),
    "where the largest is": (
        "m[i] max= X[i,j]; y[i] min= where(X[i,j]==m[i], f32(j), 1000.0)", "X=f32[7,33]", ""),
    "every other": ("Y[i,j] = X[2*i,3*j+1]", "X=f32[8,70]", "i=4 j=23"),
    "backwards": ("Y[i,j] = X[i,36-j]", "X=f32[3,37]", "j=37"),
    "interleaved": (
        "Y[i,c] = where(c==0, A[i,0]*B[i,0]-A[i,1]*B[i,1], A[i,0]*B[i,1]+A[i,1]*B[i,0])",
        "A=f32[35,2] B=f32[35,2]", "c=2"),
    "blocks to channels": (
        "Y[c,h,w] = X[4*c+2*(h%2)+w%2,h//2,w//2]", "X=f32[8,3,9]", "c=2 h=6 w=18"),
    "patches of pixels": (
        "Y[p,q,a,b,c] = X[4*p+a,5*q+b,c]", "X=f32[8,15,3]", "p=2 q=3 a=4 b=5"),
    "planes scaled": (
        "Y[n,c,h,w] = max(X[n,c,h,w] * s[c] + b[c], 0)", "X=f32[2,5,3,7] s=f32[5] b=f32[5]", ""),
    "leading axes swapped": ("Y[b,a,c,d] = X[a,b,c,d]", "X=i8[3,4,5,6]", ""),
    "short axes, half of a row": ("Y[i,j,c] = X[i,2*j,c]", "X=f64[3,14,3]", "j=7"),
    "axes backwards": ("Y[d,c,b,a] = X[a,b,c,d]", "X=f32[3,2,5,19]", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_kernels_are_right(name: str) -> None:
    text, tensors, ranges = EXPRESSIONS[name]
    workload = parse_workload("", expr=text, tensors=tensors.split(), ranges=ranges.split())
    target = native_target(threads=2)
    rng = np.random.default_rng(0)
    for sketch in space_for(workload, target).sketches:
        drawn = np.stack([rng.integers(0, len(k.values), 200) for k in sketch.knobs], axis=1)
        settings = [sketch.default(), *map(tuple, drawn[sketch.feasible(drawn)][:1])]
        for setting in dict.fromkeys(settings):
            try:
                trace = sketch.trace(tuple(int(i) for i in setting))
            except ScheduleError:  # known: turning what phases that do not divide have left
                assert setting != sketch.default()
                assert name == "transposed by three"
                continue
            assert problems(workload, trace, target) == [], trace


@pytest.mark.parametrize("text", ["where(j<=i, A[i,k]*B[k,j], 0)", "where(k<=j, A[i,k]*B[k,j], 0)"])
def test_what_a_condition_leaves_out_may_be_anything(text: str) -> None:
    """Elements that are there are read without the condition; what they hold must not matter."""
    n = 37
    workload = parse_workload(
        expr=f"Y[i,j] += {text}", tensors=[f"A=f32[{n},{n}]", f"B=f32[{n},{n}]"]
    )
    machine = native_target(threads=1)
    left, right = np.ones((n, n), np.float32), np.ones((n, n), np.float32)
    row, column = np.indices((n, n))
    if "j<=i" in text:
        right[:, -1] = np.inf
        left[-1] = 0.5
        expected = np.where(column <= row, left @ np.ones_like(right), 0)
        expected[-1, -1] = np.inf
    else:
        right[row > column] = np.nan
        expected = np.broadcast_to(1.0 + np.arange(n), (n, n))
    for sketch in space_for(workload, machine).sketches:
        kernel = compile_to_call(workload, sketch.trace(sketch.default()), machine)
        np.testing.assert_array_equal(kernel(left, right), expected)
