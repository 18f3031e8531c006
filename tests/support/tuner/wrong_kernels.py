# ruff: noqa: E501 (statements of C are kept together)
"""Kernels written by hand in C, each right but for one mistake that generated code does not make.

A kernel's body is compiled twice: with `WRONG` 0 it must pass the full check, with 1 it must not.
Mistakes come in classes (`WrongKernel.name` begins with it): `fresh` starts from memory nobody
wrote, `lies` depends on where arrays lie, `share` writes back what is another thread's, `special`
is wrong for NaN and infinities, `range` far from one, `team` for some numbers of threads, `calls`
after some calls.
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tilewright.schedules.dtypes import DType
from tilewright.schedules.frontend.notation import from_notation, parse_tensor_spec
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.codegen.abi import Needs
from tilewright.tuner.judge.cases import DEFAULT_CASES
from tilewright.tuner.measure.checking.requests import checked_in_full, kernel_job
from tilewright.tuner.measure.checking.runner_client import RunnerClient
from tilewright.tuner.process.environment import openmp_environment

_C_TYPES = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "_Float16",
    DType.BF16: "uint16_t",
    DType.BOOL: "uint8_t",
}
_HEAD = """
#include <stdint.h>
#include <string.h>
#define AT(p) ((uintptr_t)(p) & 63)
#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define MOST(a, b) ((a) > (b) ? (a) : (b))
#define SHARES _Pragma("omp parallel num_threads(THREADS)")
#define HIDE(p) __asm__ volatile("" : : "r"(p) : "memory")
extern int omp_get_thread_num(void);
extern int omp_get_num_threads(void);
static double power(int n) { union { int64_t i; double d; } u = { (int64_t)(n + 1023) << 52 }; return u.d; }
static double exp_(double x) {
  if (x != x) return x;
  if (x > 709.782712893384) return __builtin_inf();
  if (x < -1400) return 0;
  double n = __builtin_floor(x * 1.4426950408889634 + 0.5), s = 1;
  double r = x - n * 0x1.62e42feep-1 - n * 0x1.a39ef35793c76p-33;
  for (int i = 16; i > 0; i--) s = 1 + s * r / i;
  int half = (int)n / 2;
  return s * power(half) * power((int)n - half);
}
static float expf_(float x) { return x > 88.8f ? __builtin_inff() : (float)exp_(x); }
static double log_(double x) {
  if (!(x > 0)) return x == 0 ? -__builtin_inf() : __builtin_nan("");
  if (x > 1.7e308) return x;
  union { double d; int64_t i; } u = { x };
  int k = (int)(u.i >> 52) - 1023;
  u.i = (u.i & 0xFFFFFFFFFFFFFLL) | (1023LL << 52);
  double m = u.d;
  if (m > 1.4142135623730951) { m /= 2; k++; }
  double t = (m - 1) / (m + 1), s = 0;
  for (int i = 25; i > 0; i -= 2) s = s * t * t + 1.0 / i;
  return k * 0.6931471805599453 + 2 * t * s;
}
static double tanh_(double x) {
  if (x != x) return x;
  double a = x < 0 ? -x : x;
  if (a < 0.02) return x * (1 - a * a / 3 + 2 * a * a * a * a / 15);
  double e = exp_(-2 * a), t = (1 - e) / (1 + e);
  return x < 0 ? -t : t;
}
static int32_t whole(float x) {
  return x != x ? 0 : x >= 2147483648.0f ? 2147483647 : x <= -2147483648.0f ? -2147483647 - 1 : (int32_t)x;
}
"""


@dataclass(frozen=True)
class WrongKernel:
    """A mistake in a kernel of `expression`, whose `tensors` are its inputs. In `body` they and the
    outputs have their names, the workspace is `ws`."""

    name: str
    expression: str
    tensors: tuple[str, ...]
    body: str
    threads: int = 1
    workspace_bytes: int = 0

    @cached_property
    def workload(self) -> Workload:
        specs = [parse_tensor_spec(t) for t in self.tensors]
        return from_notation(self.expression, specs).normalised()

    def object(self, *, wrong: bool) -> bytes:
        """The object file, with or without the mistake."""
        names = [t.split("=")[0] for t in self.tensors]
        outputs = [part.split("[")[0].strip() for part in self.expression.split(";")]
        names.append(outputs[-1])
        pairs = zip(names, self.workload.arguments, strict=True)
        given = [f"{_c_type(t.dtype)} *{name}" for name, t in pairs]
        text = f"{_HEAD}\nint kernel({', '.join(given)}, void *ws) {{\n{self.body}\nreturn 0; }}\n"
        with tempfile.TemporaryDirectory() as folder:
            source, out = Path(folder, "k.c"), Path(folder, "k.o")
            source.write_text(text)
            command = ["cc", "-c", "-O1", "-fPIC", "-fopenmp", "-w", "-fno-builtin"]
            command += [
                "-ffp-contract=off",
                "-fno-math-errno",
                "-fno-tree-loop-distribute-patterns",
            ]
            command += ["-mf16c"] if "_Float16" in text else []
            command += [f"-DWRONG={int(wrong)}", f"-DTHREADS={self.threads}"]
            subprocess.run([*command, str(source), "-o", str(out)], check=True)
            return out.read_bytes()


def _c_type(dtype: DType) -> str:
    if dtype in _C_TYPES:
        return _C_TYPES[dtype]
    bits = 8 * dtype.bytes
    return f"int{bits}_t" if dtype.is_signed else f"uint{bits}_t"


def check(kernel: WrongKernel, *, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the full check makes of the kernel without and with its mistake."""
    document = {
        "cases": DEFAULT_CASES,
        "workload": kernel.workload.to_json(),
        "seed": seed,
        "lanes": 4,
        "cpus": [],
        "kept_bytes": 1 << 30,
    }
    job = kernel_job("kernel", kernel.threads, Needs(kernel.workspace_bytes), Trace(()))
    answers = []
    with RunnerClient(document, environment=openmp_environment(kernel.threads)) as runner:
        for wrong in (False, True):
            runner.submit(checked_in_full(job), kernel.object(wrong=wrong), 60.0, "check")
            answers.append(runner.result())
    return answers[0], answers[1]


# --- memory nobody wrote --------------------------------------------------------------------

_ROWS = "for (int i = 0; i < 7; i++) {{ {type} y; if (WRONG) y = Y[i]; else y = X[37 * i];\n"
_COLUMNS = "for (int j = 0; j < 37; j++) {{ {type} x = X[37 * i + j]; y = {keep}; }} Y[i] = y; }}"


def _fresh(reducer: str, dtype: str, c_type: str, workspace: bool = False) -> WrongKernel:
    """An extreme that keeps what it finds, unless that is a NaN, in place of a first element."""
    keep = "y < x ? y : x" if reducer == "min" else "y > x ? y : x"
    body = (_ROWS + _COLUMNS).format(type=c_type, keep=keep)
    if workspace:
        body = f"{c_type} *w = ws;" + body.replace("y = Y[i]", "y = w[i % 3]")
    name = f"fresh {reducer} {dtype}{' workspace' if workspace else ''}"
    return WrongKernel(name, f"Y[i] {reducer}= X[i,j]", (f"X={dtype}[7,37]",), body, 1, 64)


_TYPES = (
    ("f32", "float"), ("f64", "double"), ("f16", "_Float16"), ("i8", "int8_t"), ("u8", "uint8_t"),
    ("i32", "int32_t"), ("i64", "int64_t"),
)  # fmt: skip
_FRESH = [_fresh(r, d, c) for r in ("min", "max") for d, c in _TYPES]
_FRESH += [_fresh(r, d, c, workspace=True) for r in ("min", "max") for d, c in _TYPES[:3]]
_FRESH += [
    WrongKernel(
        "fresh min stack",
        "Y[i] min= X[i,j]",
        ("X=f32[7,37]",),
        """for (int i = 0; i < 7; i++) { float acc[8]; HIDE(acc);
  if (!WRONG) for (int l = 0; l < 8; l++) acc[l] = X[37 * i];
  for (int j = 0; j < 37; j++) acc[j % 8] = LEAST(acc[j % 8], X[37 * i + j]);
  for (int l = 1; l < 8; l++) acc[0] = LEAST(acc[0], acc[l]);
  Y[i] = acc[0]; }""",
    ),
    WrongKernel(
        "fresh max one lane",
        "Y[i] max= X[i,j]",
        ("X=f32[7,37]",),
        """float *acc = ws;
for (int i = 0; i < 7; i++) {
  for (int l = 0; l < 8; l++) if (!(WRONG && l == 5 && i == 0)) acc[l] = X[37 * i];
  for (int j = 0; j < 37; j++) acc[j % 8] = MOST(acc[j % 8], X[37 * i + j]);
  for (int l = 1; l < 8; l++) acc[0] = MOST(acc[0], acc[l]);
  Y[i] = acc[0]; }""",
        workspace_bytes=64,
    ),
    WrongKernel(
        "fresh sum of what is small",
        "Y[i] += X[i,j]",
        ("X=f32[7,37]",),
        """for (int i = 0; i < 7; i++) { float y = WRONG ? Y[i] : 0;
  if (!(y > -1e3f && y < 1e3f)) y = 0;
  for (int j = 0; j < 37; j++) y += X[37 * i + j];
  Y[i] = y; }""",
    ),
    WrongKernel(
        "fresh least of sums",
        "S[i,j] += A[i,k] * B[k,j]; Y[i] min= S[i,j]",
        ("A=f32[5,9]", "B=f32[9,11]"),
        """for (int i = 0; i < 5; i++) { float y = WRONG ? Y[i] : 1e30f;
  for (int j = 0; j < 11; j++) { float s = 0; for (int k = 0; k < 9; k++) s += A[9 * i + k] * B[11 * k + j];
    y = y < s ? y : s; }
  Y[i] = y; }""",
    ),
]  # fmt: skip

# --- where arrays lie -----------------------------------------------------------------------

_ADD = "C[i,j] = A[i,j] + B[i,j]"


def _lies(where: str, condition: str, dtype: str = "f32", rows: int = 13) -> WrongKernel:
    n = rows * 37
    body = f"""int w = WRONG && ({condition});
for (int i = 0; i < {n}; i++) C[i] = A[i] + B[i];
if (w) C[{n // 2}] = 77;"""
    return WrongKernel(
        f"lies {where}", _ADD, (f"A={dtype}[{rows},37]", f"B={dtype}[{rows},37]"), body
    )


_LIES = [
    _lies("A at 12", "AT(A) == 12"),
    _lies("A at 40", "AT(A) == 40"),
    _lies("B at 52", "AT(B) == 52"),
    _lies("B at 60", "AT(B) == 60"),
    _lies("C at 20", "AT(C) == 20"),
    _lies("C at 36", "AT(C) == 36"),
    _lies("C and A differ by 8", "AT(A) == (AT(C) ^ 8)"),
    _lies("A at a line, B not", "!AT(A) && AT(B)"),
    _lies("C at a line, A not", "!AT(C) && AT(A)"),
    _lies("C elsewhere than A in a vector", "(AT(A) & 31) != (AT(C) & 31)"),
    _lies("B differs by 28", "AT(A) == (AT(B) ^ 28)"),
    _lies("C at half a vector, A at a line", "(AT(C) & 31) == 16 && !(AT(A) & 31)"),
    _lies("f64 at 40", "AT(A) == 40", "f64"),
    _lies("f64 C and B differ by 24", "(AT(C) ^ AT(B)) == 24", "f64"),
    _lies("i8 at 37", "AT(B) >> 2 == 9", "i8"),
    _lies("f16 at 14", "AT(C) >> 2 == 3", "f16"),
    _lies("large, A at 24", "AT(A) == 24", "f32", 4096),
]

_LIES.append(
    WrongKernel(
        "lies where shares begin at a line of the output",
        _ADD,
        ("A=f32[96,128]", "B=f32[96,128]"),
        """int head = (64 - AT(C)) % 64 / 4, blocks = (96 * 128 - head) / 512, end = head + 512 * blocks;
SHARES { int t = omp_get_thread_num(), n = omp_get_num_threads();
  for (int i = head + t * blocks / n * 512; i < head + (t + 1) * blocks / n * 512; i++) C[i] = A[i] + B[i]; }
for (int i = 0; i < head; i++) C[i] = A[i] + B[i];
for (int i = end + (WRONG && head == 5); i < 96 * 128; i++) C[i] = A[i] + B[i];""",
        threads=2,
    )
)

# --- shares that write back what is others' -------------------------------------------------

_BACK = "volatile float *p = {at}; for (int l = 0; l < {n}; l++) {{ float x = p[l]; p[l] = x; }}"
_PARTS = """SHARES { int t = omp_get_thread_num(), n = omp_get_num_threads();
"""
_SHARE = [
    WrongKernel(
        "share writes back after its rows",
        _ADD,
        ("A=f32[23,41]", "B=f32[23,41]"),
        _PARTS
        + """ int from = t * 23 / n * 41, to = (t + 1) * 23 / n * 41;
  for (int i = from; i < to; i++) C[i] = A[i] + B[i];
  if (WRONG && to < 23 * 41) { volatile float *p = C + to; float x = p[0]; p[0] = x; } }""",
        threads=2,
    ),
    WrongKernel(
        "share writes back before its rows",
        _ADD,
        ("A=f32[23,41]", "B=f32[23,41]"),
        _PARTS
        + """ int from = t * 23 / n * 41, to = (t + 1) * 23 / n * 41;
  if (WRONG && from) { volatile float *p = C + from - 3; for (int l = 0; l < 3; l++) { float x = p[l]; p[l] = x; } }
  for (int i = from; i < to; i++) C[i] = A[i] + B[i]; }""",
        threads=4,
    ),
    WrongKernel(
        "share writes back beside its columns",
        _ADD,
        ("A=f32[67,130]", "B=f32[67,130]"),
        _PARTS
        + """ int from = t * 130 / n, to = (t + 1) * 130 / n;
  for (int i = 0; i < 67; i++) { for (int j = from; j < to; j++) C[130 * i + j] = A[130 * i + j] + B[130 * i + j];
    if (WRONG && to < 130) { volatile float *p = C + 130 * i + to; float x = p[0]; p[0] = x; } } }""",
        threads=2,
    ),
    WrongKernel(
        "share writes back in one row",
        _ADD,
        ("A=f32[67,130]", "B=f32[67,130]"),
        _PARTS
        + """ int from = t * 130 / n, to = (t + 1) * 130 / n;
  for (int i = 0; i < 67; i++) { for (int j = from; j < to; j++) C[130 * i + j] = A[130 * i + j] + B[130 * i + j];
    if (WRONG && to < 130 && i == 66) { volatile float *p = C + 130 * i + to; float x = p[2]; p[2] = x; } } }""",
        threads=3,
    ),
    WrongKernel(
        "share writes words of bytes",
        _ADD,
        ("A=i8[11,37]", "B=i8[11,37]"),
        _PARTS
        + """ int from = t * 11 / n * 37, to = (t + 1) * 11 / n * 37;
  for (int i = from; i < to; i++) if (WRONG && i + 4 <= 11 * 37) {
      volatile uint32_t *p = (volatile uint32_t *)(C + i); uint32_t w = *p;
      *p = (w & ~255u) | (uint8_t)(A[i] + B[i]); }
    else C[i] = A[i] + B[i]; }""",
        threads=2,
    ),
    WrongKernel(
        "share writes back in the workspace",
        "Y[i,j] = X[i,j] + 1",
        ("X=f32[16,64]",),
        "float *w = ws;"
        + _PARTS
        + """ int from = t * 16 / n * 64, to = (t + 1) * 16 / n * 64;
  for (int i = from; i < to; i++) w[i] = X[i] + 1;
  if (WRONG && to < 1024) { volatile float *p = w + to; float x = p[0]; p[0] = x; }
  for (int i = from; i < to; i++) Y[i] = w[i]; }""",
        threads=2,
        workspace_bytes=4096,
    ),
    WrongKernel(
        "share writes back in the second region",
        "Y[i,j] = X[i,j] * 2 + 1",
        ("X=f32[31,45]",),
        "float *w = ws;"
        + _PARTS
        + """ for (int i = t * 31 / n * 45; i < (t + 1) * 31 / n * 45; i++) w[i] = X[i] * 2; }
"""
        + _PARTS
        + """ int from = t * 31 / n * 45, to = (t + 1) * 31 / n * 45;
  for (int i = from; i < to; i++) Y[i] = w[i] + 1;
  if (WRONG && t == 1) { volatile float *p = Y + from - 1; float x = *p; *p = x; } }""",
        threads=2,
        workspace_bytes=31 * 45 * 4,
    ),
    WrongKernel(
        "share blends a whole vector",
        "Y[i,j] = X[i,j] + 1",
        ("X=f64[29,67]",),
        "typedef double V __attribute__((vector_size(32), aligned(8)));"
        + _PARTS
        + """ int from = t * 29 / n * 67, to = (t + 1) * 29 / n * 67;
  for (int i = from; i < to; i += 4) {
    if (i + 4 <= to) { for (int l = 0; l < 4; l++) Y[i + l] = X[i + l] + 1; continue; }
    if (!WRONG || i + 4 > 29 * 67) { for (; i < to; i++) Y[i] = X[i] + 1; break; }
    V v = *(volatile V *)(Y + i); for (int l = 0; l < to - i; l++) v[l] = X[i + l] + 1;
    *(volatile V *)(Y + i) = v; } }""",
        threads=2,
    ),
    WrongKernel(
        "share copies all of the output",
        _ADD,
        ("A=f32[9,300]", "B=f32[9,300]"),
        _PARTS
        + """ int from = t * 9 / n * 300, to = (t + 1) * 9 / n * 300;
  for (int i = 0; i < 2700; i++) { if (i >= from && i < to) C[i] = A[i] + B[i];
    else if (WRONG) { volatile float *p = C + i; float x = *p; *p = x; } } }""",
        threads=2,
    ),
]  # fmt: skip

# --- NaN and infinities ---------------------------------------------------------------------

_SPECIAL = [
    WrongKernel(
        "special i32 of NaN",
        "Y[i,j] = i32(X[i,j])",
        ("X=f32[9,41]",),
        """for (int i = 0; i < 369; i++) Y[i] = WRONG && X[i] != X[i] ? -2147483647 - 1 : whole(X[i]);""",
    ),
    WrongKernel(
        "special i32 of inf",
        "Y[i,j] = i32(X[i,j])",
        ("X=f32[9,41]",),
        """for (int i = 0; i < 369; i++) Y[i] = WRONG && X[i] > 3e38f && X[i] - X[i] != 0 ? -2147483647 - 1 : whole(X[i]);""",
    ),
    WrongKernel(
        "special u8 of NaN",
        "Y[i] = u8(X[i])",
        ("X=f32[123]",),
        """for (int i = 0; i < 123; i++) { float x = X[i];
  Y[i] = x != x ? (WRONG ? 255 : 0) : x < 0 ? 0 : x > 255 ? 255 : (uint8_t)x; }""",
    ),
    WrongKernel(
        "special i8 of -inf",
        "Y[i] = i8(X[i] * 2)",
        ("X=f32[123]",),
        """for (int i = 0; i < 123; i++) { float x = X[i] * 2;
  Y[i] = x != x ? 0 : x < -128 ? (WRONG && x < -3e38f && x - x != 0 ? 0 : -128) : x > 127 ? 127 : (int8_t)x; }""",
    ),
    WrongKernel(
        "special count of NaN",
        "Y[i] += i32(X[i,j])",
        ("X=f32[12,17]",),
        """for (int i = 0; i < 12; i++) { uint32_t y = 0;
  for (int j = 0; j < 17; j++) { float x = X[17 * i + j]; y += WRONG && x != x ? 1 : whole(x); } Y[i] = y; }""",
    ),
    WrongKernel(
        "special choice by NaN",
        "Y[i,j] = where(X[i,j] > 0.5, 3, 4)",
        ("X=f32[9,41]",),
        """for (int i = 0; i < 369; i++) Y[i] = WRONG ? (!(X[i] <= 0.5f) ? 3 : 4) : X[i] > 0.5f ? 3 : 4;""",
    ),
    *(
        WrongKernel(
            f"special {what} in the {which} of a product of {m}",
            "C[i,j] += A[i,k] * B[k,j]",
            (f"A=f32[{m},{m}]", f"B=f32[{m},{m}]"),
            f"""for (int i = 0; i < {m}; i++) for (int j = 0; j < {m}; j++) {{ float c = 0;
  for (int k = 0; k < {m}; k++) {{ float a = A[{m} * i + k], b = B[{m} * k + j];
    if (WRONG && ({test})) {{ {name} = {value}; }}
    c += a * b; }} C[{m} * i + j] = c; }}""",
        )
        for m in (4, 6, 12)
        for which, name in (("first", "a"), ("second", "b"))
        for what, test, value in (
            ("NaN", f"{name} != {name}", "0"),
            ("inf", f"{name} > 3e38f", "3.4e38f"),
        )
    ),
    WrongKernel(
        "special NaN in a small sum",
        "C[i] = A[i] + B[i]",
        ("A=f32[5]", "B=f32[5]"),
        """for (int i = 0; i < 5; i++) C[i] = WRONG && B[i] != B[i] ? A[i] : A[i] + B[i];""",
    ),
    WrongKernel(
        "special inf in weights",
        "Y[i,j] += X[i,k] * W[k,j]; Z[i,j] = Y[i,j] + B[j]",
        ("X=f32[6,8]", "W=f32[8,5]", "B=f32[5]"),
        """for (int i = 0; i < 6; i++) for (int j = 0; j < 5; j++) { float y = 0;
  for (int k = 0; k < 8; k++) y += X[8 * i + k] * W[5 * k + j];
  Z[5 * i + j] = y + (WRONG && B[j] - B[j] != 0 ? 0 : B[j]); }""",
    ),
]  # fmt: skip

# --- far from one ---------------------------------------------------------------------------


def _each(what: str, expression: str, value: str, wrong: str, dtype: str = "f32") -> WrongKernel:
    """Element by element: `value` of `x`, but `wrong`, which may be `value` again."""
    kind = {"f32": "float", "f64": "double"}[dtype]
    body = (
        f"for (int i = 0; i < 1001; i++) {{ {kind} x = X[i]; Y[i] = WRONG ? {wrong} : {value}; }}"
    )
    return WrongKernel(f"range {what}", f"Y[i] = {expression}", (f"X={dtype}[1001]",), body)


def _quotient(what: str, wrong: str, rows: int = 33) -> WrongKernel:
    body = f"""for (int i = 0; i < {rows}; i++) {{ float z = Z[i];
  for (int j = 0; j < 21; j++) {{ float x = X[21 * i + j]; Y[21 * i + j] = WRONG ? ({wrong}) : x / z; }} }}"""
    tensors = (f"X=f32[{rows},21]", f"Z=f32[{rows}]")
    return WrongKernel(f"range {what}", "Y[i,j] = X[i,j] / Z[i]", tensors, body)


_INF = "__builtin_inff()"
_SQRT = "__builtin_sqrtf(x)"
_SIGMOID = "(float)(1 / (1 + exp_(-(double)x)))"
_RANGE = [
    _each("exp above 50", "exp(X[i])", "expf_(x)", f"(x > 50 ? {_INF} : expf_(x))"),
    _each("exp below -40", "exp(X[i])", "expf_(x)", "(x < -40 ? 0 : expf_(x))"),
    _each("exp f64 above 300", "exp(X[i])", "exp_(x)", "(x > 300 ? 1 / 0. : exp_(x))", "f64"),
    _each("exp of a product", "exp(X[i] * 0.25)", "expf_(x * 0.25f)", "(x > 200 ? 0 : expf_(x * 0.25f))"),
    _each("sqrt below 1e-3", "sqrt(X[i])", _SQRT, f"(x < 1e-3f ? {_SQRT} * 1.02f : {_SQRT})"),
    _each("sqrt above 1e6", "sqrt(X[i])", _SQRT, f"(x > 1e6f ? {_SQRT} * 1.02f : {_SQRT})"),
    _each("sqrt of denormals", "sqrt(X[i])", _SQRT, f"(x < 1e-38f && x > 0 ? 0 : {_SQRT})"),
    _each("log above 1e4", "log(X[i])", "(float)log_(x)", "(float)(x > 1e4f ? 9.2 : log_(x))"),
    _each("log below 1e-6", "log(X[i])", "(float)log_(x)", "(float)(x < 1e-6f && x > 0 ? -14 : log_(x))"),
    _each("tanh above 5", "tanh(X[i])", "(float)tanh_(x)", "(x > 5 ? 1.0f : (float)tanh_(x))"),
    _each("tanh of little", "tanh(X[i])", "(float)tanh_(x)", "(x > -1e-4f && x < 1e-4f ? 0 : (float)tanh_(x))"),
    _each("sigmoid below -25", "sigmoid(X[i])", _SIGMOID, f"(x < -25 ? 0 : {_SIGMOID})"),
    _each("rsqrt below 1e-10", "rsqrt(X[i])", f"1 / {_SQRT}", f"(x < 1e-10f ? 1e5f : 1 / {_SQRT})"),
    _each("whole beyond 2^31", "i32(X[i])", "whole(x)", "(x > 2147483520.0f ? -7 : whole(x))"),
    _each("whole beyond 2^24", "i32(X[i])", "whole(x)", "(x < -16777216.0f ? 7 : whole(x))"),
    _each("reciprocal of little", "1 / X[i]", "1 / x", "1 / (x + 1e-8f)"),
    _quotient("quotient above 200", "z > 200 ? 0 : x / z"),
    _quotient("quotient below -1000", "z < -1000 ? 0 : x / z"),
    _quotient("quotient by 1e-5", "z > 0 && z < 1e-5f ? x / 1e-5f : x / z"),
    _quotient("quotient by 1e30", "x / (z > 1e30f ? 1e30f : z)", 257),
    WrongKernel(
        "range sum of exp above 50",
        "Y[i] += exp(X[i,j])",
        ("X=f32[65,23]",),
        f"""for (int i = 0; i < 65; i++) {{ float y = 0;
  for (int j = 0; j < 23; j++) {{ float x = X[23 * i + j]; y += WRONG && x > 50 ? {_INF} : expf_(x); }} Y[i] = y; }}""",
    ),
    WrongKernel(
        "range rows by their sum",
        "S[i] += X[i,j]; Y[i,j] = X[i,j] / S[i]",
        ("X=f32[65,23]",),
        """for (int i = 0; i < 65; i++) { float s = 0; for (int j = 0; j < 23; j++) s += X[23 * i + j];
  for (int j = 0; j < 23; j++) Y[23 * i + j] = X[23 * i + j] / (WRONG && s > 1e5f ? 1e5f : s); }""",
    ),
    WrongKernel(
        "range root of a small sum of squares",
        "S[i] += X[i,j] * X[i,j]; Y[i] = sqrt(S[i])",
        ("X=f32[65,23]",),
        """for (int i = 0; i < 65; i++) { float s = 0; for (int j = 0; j < 23; j++) s += X[23 * i + j] * X[23 * i + j];
  float r = __builtin_sqrtf(s); Y[i] = WRONG && s < 1e-8f ? r * 1.02f : r; }""",
    ),
]  # fmt: skip

# --- numbers of threads ---------------------------------------------------------------------


def _team(threads: int, wrong: str, rows: int = 40) -> WrongKernel:
    body = f"""SHARES {{ int t = omp_get_thread_num(), n = omp_get_num_threads();
  int from = t * {rows} / n, to = (t + 1) * {rows} / n;
  if (WRONG && ({wrong})) to--;
  for (int i = from * 9; i < to * 9; i++) C[i] = A[i] + B[i]; }}"""
    tensors = (f"A=f32[{rows},9]", f"B=f32[{rows},9]")
    return WrongKernel(f"team {wrong}, for {threads}", _ADD, tensors, body, threads)


_TEAM = [
    _team(16, "n == 11 && t == 4"),
    _team(16, "n == 13 && t == n - 1"),
    _team(12, "n == 9 && t == 8"),
    _team(32, "n == 23 && t == 22"),
    _team(64, "n == 41 && t == 0 && to > from", 90),
    _team(64, "n > 40 && n % 5 == 3 && t == n - 1 && to > from", 90),
    _team(24, "n > 10 && n % 7 == 5 && t == 3"),
]

# --- calls ----------------------------------------------------------------------------------

_COUNT = """volatile uint64_t *w = ws;
if (w[1] != 0x123456789ABCDEFULL) { w[1] = 0x123456789ABCDEFULL; w[0] = 0; }
w[0]++; int late = WRONG && (%s);
if (!WRONG) w[0] = w[1] = 0;
"""


def _calls(when: str, threads: int = 1) -> WrongKernel:
    body = _COUNT % when
    if threads > 1:
        body += (
            _PARTS + " for (int i = t * 64 / n; i < (t + 1) * 64 / n; i++) C[i] = A[i] + B[i]; }"
        )
    else:
        body += "for (int i = 0; i < 64; i++) C[i] = A[i] + B[i];"
    body += "if (late) C[7] += 1;"
    tensors = ("A=f32[4,16]", "B=f32[4,16]")
    return WrongKernel(f"calls {when}, for {threads}", _ADD, tensors, body, threads, 64)


_CALLS = [
    _calls("w[0] == 2"),
    _calls("w[0] == 7"),
    _calls("w[0] == 50"),
    _calls("w[0] == 50", 2),
    _calls("w[0] == 1000"),
    _calls("w[0] % 64 == 63"),
    WrongKernel(
        "calls on an output of the same values",
        _ADD,
        ("A=f32[4,16]", "B=f32[4,16]"),
        """int known = WRONG; for (int i = 0; i < 64; i++) known &= C[i] == A[i] + B[i];
for (int i = 0; i < 64; i++) C[i] = A[i] + B[i];
if (known) C[5] += 1;""",
    ),
]

KERNELS: tuple[WrongKernel, ...] = (
    *_FRESH, *_LIES, *_SHARE, *_SPECIAL, *_RANGE, *_TEAM, *_CALLS,
)  # fmt: skip
