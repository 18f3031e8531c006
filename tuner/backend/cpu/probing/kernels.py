"""LLVM IR of the probes: arithmetic in registers, reading a buffer, and the functions that run
them.

Every kernel is `void NAME(i64 iterations, ptr data, i64 bytes)`. No optimisation pass runs, because
it might remove the measured operations.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tilewright.schedules.dtypes import DType
from tilewright.schedules.nest.instructions import Instruction
from tilewright.schedules.target import Target

DRIVER = "tw_probe_run"
REGIONS = "tw_probe_regions"
EMPTY_REGION = "tw_probe_empty_region"
CHAIN_STEPS = 64
"""The number of operations per iteration of `chain_kernel`, without those of the loop counter."""
LINE_STRIDE_BYTES = 4096 + 64
"""Distance of the lines that `strided_kernel` reads: each in another page, and in another set."""

_STREAMS = 4
_LOADS_PER_STREAM = 4
_LLVM_TYPE = {DType.F32: "float", DType.F64: "double", DType.I32: "i32"}


@dataclass(frozen=True, slots=True)
class ProbeKernel:
    """A kernel and its number of operations per iteration, which is 0 for a kernel that only
    reads."""

    text: str
    symbol: str
    ops_per_iteration: int = 0


def accumulators(target: Target) -> int:
    """Return the number of independent chains: more than latency x pipes (4 x 2), but few enough
    for the registers."""
    return 24 if target.vector_registers >= 32 else 12


def arithmetic_kernel(target: Target, dtype: DType, symbol: str) -> ProbeKernel:
    """Return a kernel of `acc = acc * m + c` on independent full vectors in registers.

    The operands are read from `data` by volatile accesses, so that the compiler cannot treat them
    as constants. The values converge to 1 (floats) and stay normal numbers.
    """
    chains, lanes = accumulators(target), target.lanes(dtype)
    element = _LLVM_TYPE[dtype]
    vector = f"<{lanes} x {element}>"
    phis, steps = [], []
    for i in range(chains):
        phis.append(f"  %p{i} = phi {vector} [ %m, %entry ], [ %n{i}, %loop ]")
        steps.append(_multiply_add(f"%n{i}", f"%p{i}", vector, lanes, dtype))
    m, c = ("0.5", "0.5") if dtype.is_float else ("3", "1")
    text = _looped(
        symbol,
        [
            *_through_memory("%m", vector, f"{element} {m}"),
            *_through_memory("%c", vector, f"{element} {c}"),
        ],
        [*phis, *steps],
        _fold("fadd" if dtype.is_float else "add", vector, [f"%n{i}" for i in range(chains)]),
    )
    return ProbeKernel(text, symbol, 2 * lanes * chains)


def dot_kernel(target: Target, row: Instruction, symbol: str) -> ProbeKernel | None:
    """Return a kernel of `acc = acc + dot(m, c)` on full vectors. `row` is the instruction for
    `dot`.

    Return None if the target lacks the instruction at its vector width. The factors are small
    numbers, read from `data` by volatile accesses. Integer sums wrap around.
    """
    lanes, chains = target.vector_bits // row.sums.bits, accumulators(target)
    form = row.form_for(lanes)
    if form is None or not form.is_on(target.features):
        return None
    factors = "bfloat" if row.left is DType.BF16 else row.left.llvm
    vector, given = f"<{lanes} x {row.sums.llvm}>", f"<{lanes * row.steps} x {factors}>"
    intrinsic = f"@{form.function}"
    phis, steps = [], []
    for i in range(chains):
        phis.append(f"  %p{i} = phi {vector} [ zeroinitializer, %entry ], [ %n{i}, %loop ]")
        steps.append(f"  %n{i} = call {vector} {intrinsic}({vector} %p{i}, {given} %m, {given} %c)")
    is_float = row.sums.is_float
    one, other = ("0xR3F00", "0xR3F00") if is_float else ("3", "1")
    text = _looped(
        symbol,
        [
            *_through_memory("%m", given, f"{factors} {one}"),
            *_through_memory("%c", given, f"{factors} {other}"),
        ],
        [*phis, *steps],
        _fold("fadd" if is_float else "add", vector, [f"%n{i}" for i in range(chains)]),
    )
    declared = f"declare {vector} {intrinsic}({vector}, {given}, {given})\n"
    return ProbeKernel(declared + text, symbol, 2 * row.steps * lanes * chains)


def chain_kernel(symbol: str) -> ProbeKernel:
    """Return a kernel of dependent additions and exclusive ors on one integer register.

    Every core executes one such operation per cycle. So the operations per second equal the clock
    frequency. The operands are read from `data`, so that the compiler cannot simplify the chain.
    """
    steps, last = [], "%x"
    for i in range(CHAIN_STEPS):
        op, operand = ("xor", "%b") if i % 2 else ("add", "%a")
        steps.append(f"  %y{i} = {op} i64 {last}, {operand}")
        last = f"%y{i}"
    text = _looped(
        symbol,
        [line for name in ("%a", "%b") for line in _register_through_memory(name)],
        [f"  %x = phi i64 [ %a, %entry ], [ {last}, %loop ]", *steps],
        [f"  store volatile i64 {last}, ptr %data, align 8"],
    )
    return ProbeKernel(text, symbol, CHAIN_STEPS)


def _looped(symbol: str, before: list[str], body: list[str], after: list[str]) -> str:
    """Return a kernel that runs the code `body` `iterations` times. `body` begins with its phi
    instructions."""
    lines = [
        f"define void @{symbol}(i64 %iterations, ptr %data, i64 %bytes) nounwind {{",
        "entry:",
        *before,
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]",
        *body,
        "  %i1 = add i64 %i, 1",
        "  %more = icmp slt i64 %i1, %iterations",
        "  br i1 %more, label %loop, label %done",
        "done:",
        *after,
        "  ret void",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _register_through_memory(name: str) -> list[str]:
    return [
        "  store volatile i64 12345, ptr %data, align 8",
        f"  {name} = load volatile i64, ptr %data, align 8",
    ]


def _multiply_add(name: str, acc: str, vector: str, lanes: int, dtype: DType) -> str:
    if dtype.is_float:
        suffix = f"v{lanes}{dtype.value}"
        args = f"{vector} {acc}, {vector} %m, {vector} %c"
        return f"  {name} = call {vector} @llvm.fmuladd.{suffix}({args})"
    return f"  {name}m = mul {vector} {acc}, %m\n  {name} = add {vector} {name}m, %c"


def _through_memory(name: str, vector: str, constant: str) -> list[str]:
    return [
        f"  store volatile {vector} splat ({constant}), ptr %data, align 4",
        f"  {name} = load volatile {vector}, ptr %data, align 4",
    ]


def _fold(op: str, vector: str, values: list[str]) -> list[str]:
    """Return code that combines `values` and stores the result, so that no value is dead code."""
    lines, total = [], values[0]
    for i, value in enumerate(values[1:]):
        lines.append(f"  %fold{i} = {op} {vector} {total}, {value}")
        total = f"%fold{i}"
    return [*lines, f"  store volatile {vector} {total}, ptr %data, align 4"]


def read_step_bytes(target: Target) -> int:
    """Return the number of bytes that the kernel of `read_kernel` reads per iteration of its inner
    loop (all streams together). The kernel's argument `bytes` must be a multiple of this number."""
    return _STREAMS * _LOADS_PER_STREAM * target.vector_bits // 8


def read_kernel(target: Target, symbol: str) -> ProbeKernel:
    """Return a kernel that reads `bytes` at `data` from front to back, `iterations` times.

    It reads four parallel streams, because one stream does not use all prefetchers and miss buffers
    of some cores. It combines the vectors by OR in eight accumulators, which costs less than the
    loads.
    """
    step = _LOADS_PER_STREAM * target.vector_bits // 8
    vector = f"<{target.vector_bits // 64} x i64>"
    count = 8
    loads = []
    for stream in range(_STREAMS):
        loads.append(f"  %b{stream} = getelementptr i8, ptr %s{stream}, i64 %o")
        for j in range(_LOADS_PER_STREAM):
            k = stream * _LOADS_PER_STREAM + j
            acc = f"%p{k}" if k < count else f"%n{k - count}"
            offset = j * target.vector_bits // 8
            loads.append(f"  %a{k} = getelementptr i8, ptr %b{stream}, i64 {offset}")
            loads.append(f"  %v{k} = load {vector}, ptr %a{k}, align {target.vector_bits // 8}")
            loads.append(f"  %n{k} = or {vector} {acc}, %v{k}")
    last = _STREAMS * _LOADS_PER_STREAM - count
    phis, carried = [], []
    for i in range(count):
        phis.append(f"  %p{i} = phi {vector} [ %q{i}, %pass ], [ %n{last + i}, %loop ]")
        carried.append(
            f"  %q{i} = phi {vector} [ zeroinitializer, %entry ], [ %n{last + i}, %next ]"
        )
    lines = [
        f"define void @{symbol}(i64 %iterations, ptr %data, i64 %bytes) nounwind {{",
        "entry:",
        f"  %part = udiv i64 %bytes, {_STREAMS}",
        "  %s0 = getelementptr i8, ptr %data, i64 0",
        *(f"  %s{s} = getelementptr i8, ptr %s{s - 1}, i64 %part" for s in range(1, _STREAMS)),
        "  br label %pass",
        "pass:",
        "  %i = phi i64 [ 0, %entry ], [ %i1, %next ]",
        *carried,
        "  br label %loop",
        "loop:",
        "  %o = phi i64 [ 0, %pass ], [ %o1, %loop ]",
        *phis,
        *loads,
        f"  %o1 = add i64 %o, {step}",
        "  %inside = icmp slt i64 %o1, %part",
        "  br i1 %inside, label %loop, label %next",
        "next:",
        "  %i1 = add i64 %i, 1",
        "  %more = icmp slt i64 %i1, %iterations",
        "  br i1 %more, label %pass, label %done",
        "done:",
        *_fold("or", vector, [f"%n{last + i}" for i in range(count)]),
        "  ret void",
        "}",
    ]
    return ProbeKernel("\n".join(lines) + "\n", symbol)


def strided_kernel(symbol: str, line_bytes: int) -> ProbeKernel:
    """Return a kernel that reads one word every LINE_STRIDE_BYTES of the `bytes` at `data`.

    Each iteration starts one line after the previous one, so that all lines are read before one is
    read again. The loads are independent of each other.
    """
    lines = [
        f"define void @{symbol}(i64 %iterations, ptr %data, i64 %bytes) nounwind {{",
        "entry:",
        "  br label %column",
        "column:",
        "  %i = phi i64 [ 0, %entry ], [ %i1, %next ]",
        "  %q = phi i64 [ 0, %entry ], [ %v1, %next ]",
        f"  %line = urem i64 %i, {LINE_STRIDE_BYTES // line_bytes}",
        f"  %start = mul i64 %line, {line_bytes}",
        "  br label %loop",
        "loop:",
        "  %o = phi i64 [ %start, %column ], [ %o1, %loop ]",
        "  %v = phi i64 [ %q, %column ], [ %v1, %loop ]",
        "  %a = getelementptr i8, ptr %data, i64 %o",
        "  %x = load i64, ptr %a, align 8",
        "  %v1 = or i64 %v, %x",
        f"  %o1 = add i64 %o, {LINE_STRIDE_BYTES}",
        "  %inside = icmp slt i64 %o1, %bytes",
        "  br i1 %inside, label %loop, label %next",
        "next:",
        "  %i1 = add i64 %i, 1",
        "  %more = icmp slt i64 %i1, %iterations",
        "  br i1 %more, label %column, label %done",
        "done:",
        "  store volatile i64 %v1, ptr %data, align 8",
        "  ret void",
        "}",
    ]
    return ProbeKernel("\n".join(lines) + "\n", symbol)


def driver_text() -> str:
    """Return the IR of `tw_probe_run(kernel, iterations, data, bytes, arrived, threads, times)`.

    The function waits until `threads` callers have arrived, then runs the kernel. `arrived` points
    to a shared i64, initially zero. The function spins, so that all threads start within the time
    of a cache miss. A lock would delay them by a time slice of the scheduler. `times` receives four
    pairs of i64 (seconds, nanoseconds): the monotonic clock and the CPU time of the thread before
    the run, then the CPU time and the clock after it.
    """
    wall, cpu = time.CLOCK_MONOTONIC, time.CLOCK_THREAD_CPUTIME_ID
    return f"""
declare i32 @clock_gettime(i32, ptr)

define void @{DRIVER}(ptr %kernel, i64 %iterations, ptr %data, i64 %bytes,
                      ptr %arrived, i64 %threads, ptr %times) nounwind {{
entry:
  %cpu0 = getelementptr i8, ptr %times, i64 16
  %cpu1 = getelementptr i8, ptr %times, i64 32
  %wall1 = getelementptr i8, ptr %times, i64 48
  %before = atomicrmw add ptr %arrived, i64 1 seq_cst
  br label %wait
wait:
  %now = load atomic i64, ptr %arrived acquire, align 8
  %all = icmp sge i64 %now, %threads
  br i1 %all, label %go, label %wait
go:
  %r0 = call i32 @clock_gettime(i32 {wall}, ptr %times)
  %r1 = call i32 @clock_gettime(i32 {cpu}, ptr %cpu0)
  call void %kernel(i64 %iterations, ptr %data, i64 %bytes)
  %r2 = call i32 @clock_gettime(i32 {cpu}, ptr %cpu1)
  %r3 = call i32 @clock_gettime(i32 {wall}, ptr %wall1)
  ret void
}}
"""


def regions_text() -> str:
    """Return the IR of `tw_probe_regions(gomp_parallel, count, threads)`, which enters `count`
    empty regions."""
    return f"""
define void @{EMPTY_REGION}(ptr %data) nounwind {{
  ret void
}}

define void @{REGIONS}(ptr %gomp_parallel, i64 %count, i32 %threads) nounwind {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  call void %gomp_parallel(ptr @{EMPTY_REGION}, ptr null, i32 %threads, i32 0)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
