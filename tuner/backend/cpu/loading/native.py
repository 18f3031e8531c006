"""Native helpers of the process that checks kernels: timing loops, clock burst and fault report.

They are LLVM IR, compiled for the host when the runner starts.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .stand_in import StandIn, stand_in, stand_in_ir
from .store_watch import STORE_WATCH_IR, SUPPORTED, StoreWatch

# number of independent chains, two FMA pipes x five cycles of latency: enough for current cores
_CHAINS = 10

_CLOCK = """
declare i32 @clock_gettime(i32, ptr)

define internal i64 @now_ns() {
  %t = alloca [2 x i64]
  call i32 @clock_gettime(i32 1, ptr %t)
  %secs = load i64, ptr %t
  %p = getelementptr i64, ptr %t, i64 1
  %ns = load i64, ptr %p
  %whole = mul i64 %secs, 1000000000
  %sum = add i64 %whole, %ns
  ret i64 %sum
}
"""

_FAULTS = """
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare void @_exit(i32)

define void @on_fault(i32 %signal, ptr %info, ptr %context) {{
  %page = inttoptr i64 {page} to ptr
  %code_at = getelementptr i8, ptr %info, i64 8
  %code = load i32, ptr %code_at
  %address_at = getelementptr i8, ptr %info, i64 16
  %address = load i64, ptr %address_at
  %signal64 = sext i32 %signal to i64
  %code64 = sext i32 %code to i64
  %p1 = getelementptr i64, ptr %page, i64 1
  %p2 = getelementptr i64, ptr %page, i64 2
  %p3 = getelementptr i64, ptr %page, i64 3
  store volatile i64 %code64, ptr %p1
  store volatile i64 %address, ptr %p2
  %probe = call ptr @mmap(ptr null, i64 {probe_bytes}, i32 0, i32 {probe_flags}, i32 -1, i64 0)
  %failed = icmp eq ptr %probe, inttoptr (i64 -1 to ptr)
  %exhausted = zext i1 %failed to i64
  store volatile i64 %exhausted, ptr %p3
  store volatile i64 %signal64, ptr %page
  call void @_exit(i32 {exit_code})
  unreachable
}}
"""

FAULT_EXIT_CODE = 98
_PROBE_BYTES = 64 << 20
_PROBE_FLAGS = 0x02 | 0x20 | 0x4000  # private, anonymous, no reserve


def _burst_ir(lanes: int) -> str:
    """Return the IR of `clock_burst(n)`, which executes n rounds of independent multiply-adds in
    registers."""
    vector = f"<{lanes} x float>"
    phis, steps = [], []
    for i in range(_CHAINS):
        start = "<" + ", ".join(["float 1.5"] * lanes) + ">"
        half = "<" + ", ".join(["float 0.5"] * lanes) + ">"
        phis.append(f"  %x{i} = phi {vector} [ {start}, %entry ], [ %y{i}, %loop ]")
        steps.append(f"  %m{i} = fmul contract {vector} %x{i}, {half}")
        steps.append(f"  %y{i} = fadd contract {vector} %m{i}, {half}")
    sums = [f"  %s0 = fadd {vector} %y0, %y1"]
    sums += [f"  %s{i - 1} = fadd {vector} %s{i - 2}, %y{i}" for i in range(2, _CHAINS)]
    last = f"%s{_CHAINS - 2}"
    return "\n".join(
        [
            "define float @clock_burst(i64 %n) noinline {",
            "entry:",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]",
            *phis,
            *steps,
            "  %i1 = add i64 %i, 1",
            "  %more = icmp ult i64 %i1, %n",
            "  br i1 %more, label %loop, label %done",
            "done:",
            *sums,
            f"  %r = extractelement {vector} {last}, i32 0",
            "  ret float %r",
            "}",
            # The share of one thread of a parallel region. `data` points to the number of rounds.
            "define void @team_burst(ptr %data) {",
            "  %n = load i64, ptr %data",
            "  call float @clock_burst(i64 %n)",
            "  ret void",
            "}",
        ]
    )


def _arguments_ir(arguments: int) -> tuple[str, str]:
    """Return the lines that load `arguments` pointers from `%argv`, and the text of the argument
    list."""
    loads = []
    for i in range(arguments):
        loads.append(f"  %p{i} = getelementptr ptr, ptr %argv, i64 {i}")
        loads.append(f"  %a{i} = load ptr, ptr %p{i}")
    return "\n".join(loads), ", ".join(f"ptr %a{i}" for i in range(arguments))


def _together_ir(arguments: int) -> str:
    """Return the IR of `call_until`. It counts its calls in the first word until the second word is
    not zero."""
    loads, passed = _arguments_ir(arguments)
    return f"""
define void @call_until(ptr %fn, ptr %argv, ptr %words) {{
entry:
{loads}
  %stop_at = getelementptr i64, ptr %words, i64 1
  br label %call
call:
  call i32 %fn({passed})
  %count = load volatile i64, ptr %words
  %more = add i64 %count, 1
  store volatile i64 %more, ptr %words
  %stop = load volatile i64, ptr %stop_at
  %go_on = icmp eq i64 %stop, 0
  br i1 %go_on, label %call, label %done
done:
  ret void
}}
"""


def _timing_ir(arguments: int) -> str:
    """Return the IR of `time_rounds`, which times bursts and rounds of calls in nanoseconds."""
    loads, passed = _arguments_ir(arguments)
    return f"""
define void @time_rounds(ptr %fn, ptr %argv, i64 %calls, i64 %rounds, i64 %burst,
                         ptr %kernel_ns, ptr %burst_ns) {{
entry:
{loads}
  br label %round
round:
  %r = phi i64 [ 0, %entry ], [ %r1, %called ]
  %b0 = call i64 @now_ns()
  call float @clock_burst(i64 %burst)
  %b1 = call i64 @now_ns()
  %b = sub i64 %b1, %b0
  %bp = getelementptr i64, ptr %burst_ns, i64 %r
  store i64 %b, ptr %bp
  %more_rounds = icmp ult i64 %r, %rounds
  br i1 %more_rounds, label %start, label %done
start:
  %k0 = call i64 @now_ns()
  br label %call
call:
  %c = phi i64 [ 0, %start ], [ %c1, %call ]
  call i32 %fn({passed})
  %c1 = add i64 %c, 1
  %more_calls = icmp ult i64 %c1, %calls
  br i1 %more_calls, label %call, label %called
called:
  %k1 = call i64 @now_ns()
  %k = sub i64 %k1, %k0
  %kp = getelementptr i64, ptr %kernel_ns, i64 %r
  store i64 %k, ptr %kp
  %r1 = add i64 %r, 1
  br label %round
done:
  ret void
}}
"""


@dataclass(frozen=True)
class Helpers:
    """The compiled helpers. `engine` owns the code and must outlive every use of an address."""

    engine: Any
    fault_handler: int
    clock_burst: Any
    team_burst: int
    time_rounds: Any
    call_until: Any
    stand_in: StandIn
    store_watch: StoreWatch | None

    def time(
        self, function: int, argv: Any, calls: int, rounds: int, burst: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the seconds per call in each round, shape (rounds,), and the seconds of each clock
        burst, shape (rounds + 1,).

        A round consists of `calls` calls of `function(*argv)`. A burst of `burst` steps runs before
        the first round, between rounds and after the last.
        """
        kernel_ns = np.zeros(rounds, np.int64)
        burst_ns = np.zeros(rounds + 1, np.int64)
        self.time_rounds(
            function, argv, calls, rounds, burst, kernel_ns.ctypes.data, burst_ns.ctypes.data
        )
        return kernel_ns / 1e9 / calls, burst_ns / 1e9


def build_helpers(arguments: int, lanes: int, fault_page: int) -> Helpers:
    """Compile the helpers for kernels with `arguments` pointers.

    `lanes` is the f32 vector width of the clock burst. The fault handler stores four int64 at the
    address `fault_page`: signal, code, address, memory exhausted.
    """
    import llvmlite.binding as llvm

    from ....emit.object_code import host_target_machine  # Start-up: it loads LLVM

    faults = _FAULTS.format(
        page=fault_page,
        probe_bytes=_PROBE_BYTES,
        probe_flags=_PROBE_FLAGS,
        exit_code=FAULT_EXIT_CODE,
    )
    parts = (_burst_ir(lanes), _timing_ir(arguments), _together_ir(arguments))
    watch = [STORE_WATCH_IR] if SUPPORTED else []
    text = "\n".join([_CLOCK, faults, *parts, stand_in_ir(arguments), *watch])
    machine = host_target_machine()
    module = llvm.parse_assembly(text)
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    void, i64 = ctypes.c_void_p, ctypes.c_int64
    burst = ctypes.CFUNCTYPE(ctypes.c_float, i64)
    rounds = ctypes.CFUNCTYPE(None, void, void, i64, i64, i64, void, void)
    return Helpers(
        engine=engine,
        fault_handler=engine.get_function_address("on_fault"),
        clock_burst=burst(engine.get_function_address("clock_burst")),
        team_burst=engine.get_function_address("team_burst"),
        time_rounds=rounds(engine.get_function_address("time_rounds")),
        call_until=ctypes.CFUNCTYPE(None, void, void, void)(
            engine.get_function_address("call_until")
        ),
        stand_in=stand_in(engine, arguments),
        store_watch=StoreWatch(engine) if SUPPORTED else None,
    )
