"""Small C kernels, right and wrong, and the cases to hold them against: `out = in + 1`."""

from __future__ import annotations

import functools
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.schedules.dtypes import DType
from tilewright.schedules.workload.tensors import Tensor
from tilewright.tuner.arrays import Array

N = 1001  # 4004 bytes: neither a whole page nor a whole vector
TENSORS = (Tensor("A", (N,), DType.F32), Tensor("B", (N,), DType.F32))

_HEAD = """
#include <stdint.h>
#include <stddef.h>
#include <string.h>
extern int omp_get_thread_num(void);
extern int omp_get_num_threads(void);
#define N 1001
/* Linux on x86-64 without the C library, which no kernel may call: see the system calls below. */
static long sys(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}
static void end(int code) { sys(231, code, 0, 0, 0, 0, 0); }
static void raise_signal(int number) { sys(62, sys(39, 0, 0, 0, 0, 0, 0), number, 0, 0, 0, 0); }
static void ignore(int number) {
  long action[4] = {1, 0, 0, 0};
  sys(13, number, (long)action, 0, 8, 0, 0);
}
static void wait_for_signals(void) { sys(34, 0, 0, 0, 0, 0, 0); }
static char *pages(long bytes) {
  long at = sys(9, 0, bytes, 3, 0x22, -1, 0);
  if (at < 0) raise_signal(11);
  return (char *)at;
}
"""

RIGHT = "for (int i = 0; i < N; i++) b[i] = a[i] + 1; "
PARALLEL = """
#pragma omp parallel num_threads(2)
{ int t = omp_get_thread_num(), n = omp_get_num_threads();
  for (int i = t * N / n; i < (t + 1) * N / n; i++) b[i] = a[i] + 1; }
"""
# Both threads add into b[0]; each alone and one after the other gives the right sum.
RACY_SUM = """
for (int i = 0; i < N; i++) b[i] = a[i];
#pragma omp parallel num_threads(2)
{ int t = omp_get_thread_num(), n = omp_get_num_threads();
  for (int i = t * N / n; i < (t + 1) * N / n; i++) b[i] += 1;
  b[0] += t ? 1 : -1; }
"""
# Thread 1 reads what thread 0 writes in the same region.
RACY_READ = """
float *w = ws;
#pragma omp parallel num_threads(2)
{ int t = omp_get_thread_num();
  if (t == 0) for (int i = 0; i < N; i++) w[i] = a[i] + 1;
  else for (int i = 0; i < N; i++) b[i] = w[i]; }
"""
# Both threads add to a variable of whoever entered the region; one after the other they are right.
RACY_STACK = """
float s = 0;
#pragma omp parallel num_threads(2)
{ int t = omp_get_thread_num(), n = omp_get_num_threads();
  for (int i = t * N / n; i < (t + 1) * N / n; i++) { b[i] = a[i] + 1; s += a[i]; } }
float r = 0;
for (int i = 0; i < N; i++) r += a[i];
b[0] += (s - r) * (s - r) > 1 ? 1 : 0;
"""
# The share of the last of three threads is wrong; teams of 1, 2 and 4 never have it.
WRONG_FOR_THREE = """
#pragma omp parallel num_threads(4)
{ int t = omp_get_thread_num(), n = omp_get_num_threads();
  for (int i = t * N / n; i < (t + 1) * N / n; i++) b[i] = a[i] + 1 + (n == 3 && t == 2); }
"""
# 234 KiB of its stack are taken for zero, the deep end: no call before it has been there.
READS_STACK = (
    RIGHT
    + """{ float x[60000]; __asm__ volatile("" : : "r"(x) : "memory");
  for (int i = 0; i < N; i++) b[i] += x[i]; }"""
)
# The same on the stack of another thread than the caller.
READS_THREAD_STACK = """
#pragma omp parallel num_threads(2)
{ float x[60000]; __asm__ volatile("" : : "r"(x) : "memory");
  int t = omp_get_thread_num(), n = omp_get_num_threads();
  for (int i = t * N / n; i < (t + 1) * N / n; i++) b[i] = a[i] + 1 + x[i]; }
"""
# Scratch that all calls share.
GLOBAL_SCRATCH = """
static float scratch[N];
for (int i = 0; i < N; i++) scratch[i] = a[i];
for (int i = 0; i < N; i++) b[i] = scratch[i] + 1;
"""
# Scratch that all calls share and no object file shows: pages at a fixed address.
HIDDEN_SCRATCH = """
volatile float *scratch = (float *)0x7654000000;
sys(9, (long)scratch, 4 * N, 3, 0x100022, -1, 0);
for (int i = 0; i < N; i++) scratch[i] = a[i];
for (int i = 0; i < N; i++) b[i] = scratch[i] + 1;
"""


@dataclass(frozen=True)
class SomeCase:
    """One set of inputs; `expected` is their result."""

    inputs: tuple[Array, ...]
    exact: bool = True
    sampled_fraction: float = 1.0

    def check(self, outputs: Sequence[Array]) -> str | None:
        expected = self.inputs[0] + 1
        wrong = np.flatnonzero(outputs[0] != expected)
        if not wrong.size:
            return None
        return f"B[{wrong[0]}] is {outputs[0][wrong[0]]}, right is {expected[wrong[0]]}"

    def error(self, outputs: Sequence[Array]) -> float | None:
        return None


@dataclass(frozen=True)
class PlusOne:
    """The cases of `out = in + 1`, as the runner asks for them."""

    tensors: tuple[Tensor, ...] = TENSORS

    @property
    def quick(self) -> SomeCase:
        return next(self.full())

    def full(self) -> Iterator[SomeCase]:
        rng = np.random.default_rng(0)
        yield SomeCase((rng.integers(-4, 5, N).astype(np.float32),))
        yield SomeCase((rng.standard_normal(N).astype(np.float32),), exact=False)


def open_cases(document: dict[str, Any]) -> PlusOne:
    return PlusOne()


def c_object(body: str) -> bytes:
    """The object file of `int kernel(const float *a, float *b, void *ws) { body }`."""
    return _compiled(f"int kernel(const float *a, float *b, void *ws) {{ {body} return 0; }}")


def prepacked_object(pack: str, main: str, whole: str = RIGHT) -> bytes:
    """The object file of a kernel whose only input is constant: `pack` fills `p` from `a`, `main`
    computes `b` from `p`, `whole` does it all."""
    return _compiled(
        f"int kernel(const float *a, float *b, void *ws) {{ {whole} return 0; }}"
        f"int kernel_prepack(const float *a, float *p) {{ {pack} return 0; }}"
        f"int kernel_prepacked(float *b, float *p, void *ws) {{ {main} return 0; }}"
    )


@functools.cache
def _compiled(functions: str) -> bytes:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler (cc)")
    if platform.machine() != "x86_64":
        pytest.skip("planted kernels make system calls of x86-64")
    text = f"{_HEAD}{functions}"
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "k.c"), Path(folder, "k.o")
        source.write_text(text)
        command = ["cc", "-c", "-O1", "-fPIC", "-fopenmp", "-w", "-fno-builtin"]
        subprocess.run([*command, str(source), "-o", str(out)], check=True)
        return out.read_bytes()


OPEN = {
    "cases": "tests.support.tuner.planted_kernels:open_cases",
    "lanes": 8,
    "cpus": [],
    "spare_bytes": 256 << 20,
}
