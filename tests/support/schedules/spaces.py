"""Expressions in no library, machines, and settings drawn of their spaces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tilewright.schedules.arrays import IntArray
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.space import Sketch, SpacePart
from tilewright.schedules.target import Cache, Target
from tilewright.schedules.workload.workload import Workload

ODD: dict[str, tuple[str, dict[str, tuple[str, tuple[int, ...]]], dict[str, int]]] = {
    "scaled product": (
        "C[i,j] += A[i,k] * B[k,j] * s[k]",
        {"A": ("f32", (33, 17)), "B": ("f32", (17, 31)), "s": ("f32", (17,))}, {},
    ),
    "three operands": (
        "C[i,j] += A[i,k] * B[k,j] * D[i,j]",
        {"A": ("f32", (13, 17)), "B": ("f32", (17, 31)), "D": ("f32", (13, 31))}, {},
    ),
    "triangular mask": (
        "C[i,j] += where(i >= k, A[i,k], 0) * B[k,j]",
        {"A": ("f32", (33, 33)), "B": ("f32", (33, 17))}, {},
    ),
    "strided convolution": (
        "Y[h,w,o] += X[2*h+r, 2*w+s, c] * W[r,s,c,o]",
        {"X": ("f32", (13, 15, 7)), "W": ("f32", (3, 3, 7, 17))}, {},
    ),
    "dilated convolution": (
        "Y[h,o] += X[h+2*r-2, c] * W[r,c,o]",
        {"X": ("f32", (31, 7)), "W": ("f32", (3, 7, 33))}, {},
    ),
    "rectangular convolution": (
        "Y[h,w,o] += X[h+r-2, w, c] * W[r,c,o]",
        {"X": ("f32", (13, 7, 5)), "W": ("f32", (5, 5, 33))}, {},
    ),
    "convolution of planes in steps": (
        "Y[o,h,w] += X[c,2*h+r-1,2*w+s-1] * W[o,c,r,s]",
        {"X": ("f32", (7, 13, 15)), "W": ("f32", (33, 7, 3, 3))}, {},
    ),
    "convolution of narrow planes": (
        "Y[o,h,w] += X[c,h+r-1,w+s-1] * W[o,c,r,s]",
        {"X": ("f32", (7, 7, 7)), "W": ("f32", (32, 7, 3, 3))}, {},
    ),
    "convolution in phases": (
        "Y[x,o] += where((x+1-r) % 3 == 0, X[(x+1-r)//3, c], 0) * W[r,c,o]",
        {"X": ("f32", (13, 7)), "W": ("f32", (4, 7, 33))}, {"x": 31},
    ),
    "each channel in phases": (
        "Y[x,y,o] += where((x-r) % 2 == 0, where((y+q) % 2 == 0, X[(x-r)//2,(y+q)//2,o], 0), 0)"
        " * W[r,q,o]",
        {"X": ("f32", (7, 6, 33)), "W": ("f32", (3, 5, 33))}, {"x": 13, "y": 17},
    ),
    "more phases than taps": (
        "Y[x,o] += where((x-r) % 5 == 0, X[(x-r)//5, c], 0) * W[r,c,o]",
        {"X": ("f32", (3, 7)), "W": ("f32", (3, 7, 17))}, {"x": 14},
    ),
    "transposed output": (
        "C[j,i] += A[i,k] * B[k,j]", {"A": ("f32", (33, 17)), "B": ("f32", (17, 31))}, {},
    ),
    "max-plus product": (
        "C[i,j] max= A[i,k] + B[k,j]", {"A": ("f32", (33, 17)), "B": ("f32", (17, 31))}, {},
    ),
    "outer product": ("C[i,j] = a[i] * b[j]", {"a": ("f32", (33,)), "b": ("f32", (65,))}, {}),
    "middle axis": ("C[i,j] += A[i,k,j]", {"A": ("f32", (7, 33, 31))}, {}),
    "one row": ("y[j] += x[k] * B[k,j]", {"x": ("f32", (33,)), "B": ("f32", (33, 65))}, {}),
    "dot product": ("c[z] += a[k] * b[k]", {"a": ("f32", (65,)), "b": ("f32", (65,))}, {"z": 1}),
    "six dimensions": (
        "C[a,b,c,d] += A[a,b,c,e,f,g] * B[e,f,g,d]",
        {"A": ("f32", (2, 3, 2, 3, 2, 3)), "B": ("f32", (3, 2, 3, 17))}, {},
    ),
    "two outputs": (
        "S[i] += A[i,j]; M[i] max= A[i,j]", {"A": ("f32", (17, 33))}, {},
    ),
    "chain of products": (
        "T[i,j] += A[i,k] * B[k,j]; C[i,l] += T[i,j] * D[j,l]",
        {"A": ("f32", (13, 17)), "B": ("f32", (17, 31)), "D": ("f32", (31, 33))}, {},
    ),
    "product with itself": ("C[i,j] += A[i,k] * A[j,k]", {"A": ("f32", (33, 17))}, {}),
    "grouped": (
        "C[i] += A[i//3, k] * B[i%3, k]",
        {"A": ("f32", (4, 17)), "B": ("f32", (3, 17))}, {"i": 12},
    ),
    "reads of one tensor in two ways": (
        "T[i,j] = A[i,j] * 2; C[i,j] += T[i,k] * T[k,j]", {"A": ("f32", (17, 17))}, {},
    ),
    "a line, elementwise": ("y[j] = x[j] + 1.0", {"x": ("f32", (1003,))}, {}),
    "one row of two axes": (
        "y[z,j] = x[z,j] * b[j]", {"x": ("f32", (1, 1003)), "b": ("f32", (1003,))}, {},
    ),
    "sum of squares of everything": ("s[z] += x[i] * x[i]", {"x": ("f32", (3001,))}, {"z": 1}),
    "greatest of everything": ("m[z] max= A[i,j]", {"A": ("f32", (67, 31))}, {"z": 1}),
    "running sums along rows": ("S[i,k] = cumsum(X[i,k], k)", {"X": ("f32", (12, 67))}, {}),
    "running sums of one row": ("S[k] = cumsum(X[k], k)", {"X": ("f32", (1003,))}, {}),
    "running sums down columns": (
        "S[k,j] = cumsum(X[k,j] * w[j], k, reverse)",
        {"X": ("f32", (17, 67)), "w": ("f32", (67,))}, {},
    ),
    "running greatest along a middle axis": (
        "S[i,k,j] = cummax(X[k,i,j], k, exclusive)", {"X": ("f32", (31, 3, 19))}, {},
    ),
    "running sums of a product": (
        "T[i,j] += A[i,k] * B[k,j]; S[i,j] = cumsum(T[i,j], j); Y[i,j] = S[i,j] * 2.0",
        {"A": ("f32", (13, 17)), "B": ("f32", (17, 33))}, {},
    ),
    "sums of groups of columns": (
        "S[n,g] += X[n,p,3*g+k]; Y[n,p,c] = X[n,p,c] * S[n,c//3]",
        {"X": ("f32", (3, 17, 33))}, {"k": 3},
    ),
    "sums of groups of planes": (
        "S[n,g] += X[n,3*g+k,p]; Y[n,c,p] = X[n,c,p] * S[n,c//3]",
        {"X": ("f32", (3, 6, 33))}, {"k": 3},
    ),
    "sums of each plane of all images": (
        "S[c] += X[n,c,p]; Y[n,c,p] = X[n,c,p] * S[c]", {"X": ("f32", (3, 7, 33))}, {},
    ),
    "norm of few rows": (
        "S[z] += A[z,i,j] * A[z,i,j]; Y[z] = S[z] * 0.5", {"A": ("f32", (1, 67, 64))}, {},
    ),
}  # fmt: skip


def workload(name: str) -> Workload:
    text, tensors, ranges = ODD[name]
    return from_notation(text, tensors, ranges)


def target(threads: int = 2, bits: int = 256, registers: int = 16) -> Target:
    return Target(
        triple="x86_64-unknown-linux-gnu", cpu="x86-64-v3", features=("avx", "avx2", "fma"),
        vector_bits=bits, vector_registers=registers,
        caches=(Cache(32768, 8), Cache(524288, 8), Cache(1 << 24, 16)), cores=2, threads=threads,
    )  # fmt: skip


SMALL = replace(target(), caches=(Cache(512, 2), Cache(2048, 4), Cache(1 << 20, 16, shared=True)))
"""A machine whose caches are small: what stays in none of them is small as well."""


def drawn(sketch: Sketch | SpacePart, count: int = 400, seed: int = 1) -> IntArray:
    sizes = [len(knob.values) for knob in sketch.knobs]
    return np.random.default_rng(seed).integers(0, sizes, (count, len(sizes)))


def drawn_with(sketch: Sketch, knob: str, count: int) -> IntArray:
    """The first feasible settings drawn in which `knob` is not at its first value."""
    at = [each.name for each in sketch.knobs].index(knob)
    settings = drawn(sketch, 20_000)
    found = settings[sketch.feasible(settings) & (settings[:, at] > 0)][:count]
    assert len(found)
    return found


def settings(sketch: Sketch, count: int, seed: int) -> Iterator[tuple[int, ...]]:
    """The default, and the feasible ones of `count` random settings."""
    sizes = [len(knob.values) for knob in sketch.knobs]
    rng = np.random.default_rng(seed)
    yield sketch.default()
    for row in rng.integers(0, sizes, (count, len(sizes))):
        if sketch.feasible(row[None, :])[0]:
            yield tuple(int(i) for i in row)
