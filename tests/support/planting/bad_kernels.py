"""Candidates that misbehave in every way one can, planted in a measurer that is otherwise real.

`Sabotaged` is the local measurer, except that the compile workers build something else for the
candidates its plan names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llvmlite import binding as llvm

from tilewright.schedules import operators
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.schedules.sketches import space_for
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.compiling.requests import compile_document
from tilewright.tuner.emit.kernel import CompiledKernel
from tilewright.tuner.emit.object_code import emit_object
from tilewright.tuner.machine.native_target import detect
from tilewright.tuner.measure.local import LocalMeasurer, MeasureSettings
from tilewright.tuner.session.memory_sink import MemorySink
from tilewright.tuner.session.report import Budget, TuneReport
from tilewright.tuner.session.run import run_session

COMPILER = "tests.support.planting.bad_kernels:compile_sabotaged"
HUGE_WORKSPACE_BYTES = 1 << 45

_TOUCH = 'call void asm sideeffect "", "~{{memory}}"()'
_AFTER = "  %p = getelementptr i8, ptr %c, i64 {at}\n  store volatile i8 1, ptr %p"
_BODIES = {
    "null pointer": "  store volatile i8 1, ptr inttoptr (i64 8 to ptr)",
    "far away": "  store volatile i8 1, ptr inttoptr (i64 139000000000000 to ptr)",
    "abort": "  %pid = call i64 @sys(i64 39, i64 0, i64 0, i64 0, i64 0, i64 0)\n"
    "  call i64 @sys(i64 62, i64 %pid, i64 6, i64 0, i64 0, i64 0)",
    "illegal instruction": "  call void @llvm.trap()",
    "division by zero": "  %z = load volatile i32, ptr %zero\n"
    "  %n = load volatile i32, ptr %zero\n  %q = sdiv i32 %n, %z\n"
    "  store volatile i32 %q, ptr %zero",
    "exit": "  call i64 @sys(i64 231, i64 0, i64 0, i64 0, i64 0, i64 0)",
    "endless loop": f"  br label %on\non:\n  {_TOUCH}\n  br label %on\nnever:",
    "stack overflow": "  call void @deep(ptr %c)",
    "eats memory": "  br label %on\non:\n"
    "  %at = call i64 @sys(i64 9, i64 0, i64 67108864, i64 3, i64 34, i64 -1)\n"
    "  %m = inttoptr i64 %at to ptr\n"
    "  %w = call ptr @memset(ptr %m, i32 1, i64 67108864)\n"
    '  call void asm sideeffect "", "r,~{{memory}}"(ptr %w)\n  br label %on\nnever:',
    "one past the end": _AFTER.format(at="{c}"),
    "one before the start": _AFTER.format(at="-1"),
    "reads past the end": "  %p = getelementptr i8, ptr %a, i64 {a}\n"
    "  %l = load volatile i8, ptr %p",
    "writes an input": "  store volatile i8 1, ptr %a",
    "does nothing": "",
    "error code": "  ret i32 7\nnever:",
    "keeps state": "  store volatile i32 1, ptr @kept",
    "calls the C library": "  call ptr @malloc(i64 8)",
}
EXPECTED = {
    "null pointer": MeasureStatus.RUN_CRASH,
    "far away": MeasureStatus.RUN_CRASH,
    "abort": MeasureStatus.RUN_CRASH,
    "illegal instruction": MeasureStatus.RUN_CRASH,
    "division by zero": MeasureStatus.RUN_CRASH,
    "exit": MeasureStatus.RUN_CRASH,
    "endless loop": MeasureStatus.RUN_TIMEOUT,
    "stack overflow": MeasureStatus.RUN_CRASH,
    "eats memory": MeasureStatus.OUT_OF_MEMORY,
    "one past the end": MeasureStatus.OUT_OF_BOUNDS,
    "one before the start": MeasureStatus.OUT_OF_BOUNDS,
    "reads past the end": MeasureStatus.OUT_OF_BOUNDS,
    "writes an input": MeasureStatus.OUT_OF_BOUNDS,
    "does nothing": MeasureStatus.WRONG_RESULT,
    "error code": MeasureStatus.WRONG_RESULT,
    "keeps state": MeasureStatus.COMPILE_ERROR,
    "calls the C library": MeasureStatus.COMPILE_ERROR,
    "huge workspace": MeasureStatus.OUT_OF_MEMORY,
    "compiler aborts": MeasureStatus.COMPILE_CRASH,
    "compiler exits": MeasureStatus.COMPILE_CRASH,
    "compiler hangs": MeasureStatus.COMPILE_TIMEOUT,
    "compiler eats memory": MeasureStatus.COMPILE_ERROR,
}
"""What each kind of sabotage must be recorded as."""

_MODULE = """
declare void @llvm.trap()
declare ptr @malloc(i64)
declare ptr @memset(ptr, i32, i64)
define internal i64 @sys(i64 %n, i64 %a, i64 %b, i64 %c, i64 %d, i64 %e) noinline {{
  %r = call i64 asm sideeffect "syscall", "={{rax}},{{rax}},{{rdi}},{{rsi}},{{rdx}},{{r10}},{{r8}},\
{{r9}},~{{rcx}},~{{r11}},~{{memory}}"(i64 %n, i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, i64 0)
  ret i64 %r
}}
define internal void @deep(ptr %p) noinline {{
  %frame = alloca [65536 x i8]
  store volatile i8 1, ptr %frame
  call void @deep(ptr %frame)
  store volatile i8 2, ptr %frame
  ret void
}}
define i32 @kernel(ptr %a, ptr %b, ptr %c, ptr %workspace) {{
  %zero = alloca i32
  store volatile i32 0, ptr %zero
{body}
  ret i32 0
}}
"""


def bad_text(what: str, argument_bytes: tuple[int, ...]) -> str:
    """LLVM IR of a kernel of two inputs and one output that does `what`."""
    llvm.initialize_native_asmparser()  # for system calls
    a, _, c = argument_bytes
    state = "@kept = internal global i32 0\n" if what == "keeps state" else ""
    return state + _MODULE.format(body=_BODIES[what].format(a=a, c=c))


def compile_sabotaged(document: dict[str, Any]) -> CompiledKernel:
    """What a compile worker does: build the candidate, or what `document["sabotage"]` says."""
    what = document.pop("sabotage")
    match what:
        case "compiler aborts":
            os.abort()
        case "compiler exits":
            os._exit(3)
        case "compiler hangs":
            time.sleep(1000)
        case "compiler eats memory":
            return bytes(8 << 30)  # type: ignore[return-value]
        case _:
            pass
    kernel: CompiledKernel = compile_document(document)
    if what == "huge workspace":
        return replace(kernel, workspace_bytes=HUGE_WORKSPACE_BYTES)
    if what is None:
        return kernel
    text = bad_text(what, kernel.argument_bytes)
    bad = emit_object(text, Target.from_json(document["target"]))
    return replace(kernel, object_bytes=bad, workspace_bytes=0)


@dataclass
class _Plan:
    """What is done to candidates in the order in which they are first seen."""

    steps: list[str | None]
    seen: dict[Trace, str | None] = field(default_factory=dict)

    def of(self, trace: Trace) -> str | None:
        if trace not in self.seen:
            number = len(self.seen)
            self.seen[trace] = self.steps[number] if number < len(self.steps) else None
        return self.seen[trace]


class Sabotaged(LocalMeasurer):
    """The local measurer on a workload of two inputs; `plan[n]` is done to candidate n."""

    def __init__(
        self,
        workload: Workload,
        target: Target,
        plan: list[str | None],
        *,
        run_deadline_secs: float = 8.0,  # long enough to fill memory on a busy machine
        compile_deadline_secs: float = 10.0,
    ) -> None:
        settings = MeasureSettings(
            compiler=COMPILER,
            run_deadline_secs=run_deadline_secs,
            compile_deadline_secs=compile_deadline_secs,
        )
        super().__init__(workload, target, 0, settings=settings)
        self._plan = _Plan(plan)

    def sabotage_of(self, trace: Trace) -> str | None:
        """What was done to a candidate, None if nothing."""
        return self._plan.of(trace)

    def _document(self, trace: Trace) -> dict[str, Any]:
        return {**super()._document(trace), "sabotage": self._plan.of(trace)}


def run_sabotaged(
    kinds: Sequence[str], threads: int
) -> tuple[TuneReport, dict[str, MeasureResult]]:
    """A tuning session whose every second candidate is one of `kinds`: its report, and what
    became of each kind."""
    target = detect().with_threads(threads)
    workload = operators.build("matmul", M=24, N=40, K=32).normalised()
    # Right ones in between: more than half wrong would rightly end the session.
    plan = [kind for each in kinds for kind in (None, each)]
    sink = MemorySink()
    measurer = Sabotaged(workload, target, plan)
    with measurer:
        report = run_session(
            workload,
            space_for(workload, target),
            measurer=measurer,
            sink=sink,
            strategy="random",
            budget=Budget(trials=len(plan)),
        )
    found: dict[str, MeasureResult] = {}
    for record in sink.records(workload.key, target.key):
        kind = measurer.sabotage_of(Trace.from_json(record.trace))
        if kind is not None:
            found[kind] = record.result
    return report, found
