"""A replacement of OpenMP (stand-in) that runs the threads of a region one after the other, and a
switch between it and OpenMP itself.

A kernel runs as a coroutine (glibc's `makecontext` and `swapcontext`). `begin` starts it and
returns at its first parallel region or at its end. Before `resume`, the caller runs the shares of
the region. A share is the part of the region that one thread executes. Kernel and shares use
dedicated stacks, which contain no frames of this program. Their content is known: a kernel that
reads stack memory before writing it reads the fill. A nested region has one share, as in OpenMP by
default.

A kernel is loaded once, bound to the functions of the switch. They jump to the stand-in or to
OpenMP, so that the code that is checked is also the code that is timed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .byte_changes import CHANGES_IR, ByteChanges, byte_changes

# The size of `ucontext_t` is 968 bytes on x86-64 and 4560 on AArch64. On both, its first fields are
# `uc_flags`, `uc_link` and `uc_stack` (pointer, flags, size), eight bytes each.
_CONTEXT_BYTES = 8192
_WORDS = (
    "function", "arguments", "status", "done", "region", "data", "asked", "frame", "thread",
    "team", "inside",
)  # fmt: skip
_FUNCTIONS = {
    "GOMP_parallel": ("parallel", "void", ("ptr", "ptr", "i32", "i32")),
    "omp_get_thread_num": ("thread", "i32", ()),
    "omp_get_num_threads": ("team", "i32", ()),
}
"""For each symbol, the part of names in the module, the type of the result, and those of
arguments."""


def _switch_ir(name: str, result: str, types: tuple[str, ...]) -> str:
    """Return the IR of the function `switch_NAME`, which jumps to the function at `w_to_NAME`."""
    arguments = ", ".join(f"{kind} %a{n}" for n, kind in enumerate(types))
    call = f"musttail call {result} %to({arguments})"
    end = f"{call}\n  ret void" if result == "void" else f"%r = {call}\n  ret {result} %r"
    return f"""
@w_to_{name} = internal global ptr @stand_in_{name}, align 8
define {result} @switch_{name}({arguments}) {{
  %to = load ptr, ptr @w_to_{name}
  {end}
}}
"""


def stand_in_ir(arguments: int) -> str:
    """Return the IR for kernels with at most `arguments` pointers. Kernels ignore additional
    pointers."""
    loads = []
    for i in range(arguments):
        loads.append(f"  %p{i} = getelementptr ptr, ptr %arguments, i64 {i}")
        loads.append(f"  %a{i} = load ptr, ptr %p{i}")
    passed = ", ".join(f"ptr %a{i}" for i in range(arguments))
    words = "\n".join(f"@w_{name} = internal global i64 0, align 8" for name in _WORDS)
    contexts = "\n".join(
        f"@c_{name} = internal global [{_CONTEXT_BYTES} x i8] zeroinitializer, align 64"
        for name in ("ours", "kernel", "outside", "share")
    )
    switch = "\n".join(_switch_ir(*parts) for parts in _FUNCTIONS.values())
    return f"""
{words}
{contexts}
{switch}
{CHANGES_IR}
declare i32 @getcontext(ptr)
declare void @makecontext(ptr, ptr, i32, ...)
declare i32 @swapcontext(ptr, ptr)
declare ptr @llvm.frameaddress.p0(i32)

define internal void @place(ptr %context, ptr %entry, ptr %stack, i64 %size, ptr %link) {{
  call i32 @getcontext(ptr %context)
  %link_at = getelementptr i8, ptr %context, i64 8
  %stack_at = getelementptr i8, ptr %context, i64 16
  %size_at = getelementptr i8, ptr %context, i64 32
  store ptr %link, ptr %link_at
  store ptr %stack, ptr %stack_at
  store i64 %size, ptr %size_at
  call void (ptr, ptr, i32, ...) @makecontext(ptr %context, ptr %entry, i32 0)
  ret void
}}

define internal void @run_kernel() {{
  %function = load volatile ptr, ptr @w_function
  %arguments = load volatile ptr, ptr @w_arguments
{chr(10).join(loads)}
  %code = call i32 %function({passed})
  %status = sext i32 %code to i64
  store volatile i64 %status, ptr @w_status
  store volatile i64 1, ptr @w_done
  ret void
}}

define internal void @run_share() {{
  %function = load volatile ptr, ptr @w_region
  %data = load volatile ptr, ptr @w_data
  call void %function(ptr %data)
  ret void
}}

define i64 @begin(ptr %function, ptr %arguments, ptr %stack, i64 %size) {{
  store volatile ptr %function, ptr @w_function
  store volatile ptr %arguments, ptr @w_arguments
  store volatile i64 0, ptr @w_done
  store volatile i64 0, ptr @w_inside
  store volatile i64 0, ptr @w_thread
  store volatile i64 1, ptr @w_team
  call void @place(ptr @c_kernel, ptr @run_kernel, ptr %stack, i64 %size, ptr @c_ours)
  call i32 @swapcontext(ptr @c_ours, ptr @c_kernel)
  %done = load volatile i64, ptr @w_done
  ret i64 %done
}}

define i64 @resume() {{
  call i32 @swapcontext(ptr @c_ours, ptr @c_kernel)
  %done = load volatile i64, ptr @w_done
  ret i64 %done
}}

define void @share(i64 %thread, i64 %team, ptr %stack, i64 %size) {{
  store volatile i64 %thread, ptr @w_thread
  store volatile i64 %team, ptr @w_team
  store volatile i64 1, ptr @w_inside
  call void @place(ptr @c_share, ptr @run_share, ptr %stack, i64 %size, ptr @c_outside)
  call i32 @swapcontext(ptr @c_outside, ptr @c_share)
  store volatile i64 0, ptr @w_inside
  store volatile i64 0, ptr @w_thread
  store volatile i64 1, ptr @w_team
  ret void
}}

define void @stand_in_parallel(ptr %function, ptr %data, i32 %asked, i32 %flags) {{
  %inside = load volatile i64, ptr @w_inside
  %nested = icmp ne i64 %inside, 0
  br i1 %nested, label %alone, label %stop
alone:
  %thread = load volatile i64, ptr @w_thread
  %team = load volatile i64, ptr @w_team
  store volatile i64 0, ptr @w_thread
  store volatile i64 1, ptr @w_team
  call void %function(ptr %data)
  store volatile i64 %thread, ptr @w_thread
  store volatile i64 %team, ptr @w_team
  ret void
stop:
  %threads = zext i32 %asked to i64
  %frame = call ptr @llvm.frameaddress.p0(i32 0)
  store volatile ptr %function, ptr @w_region
  store volatile ptr %data, ptr @w_data
  store volatile i64 %threads, ptr @w_asked
  store volatile ptr %frame, ptr @w_frame
  call i32 @swapcontext(ptr @c_kernel, ptr @c_ours)
  ret void
}}

define i32 @stand_in_thread() {{
  %thread = load volatile i64, ptr @w_thread
  %number = trunc i64 %thread to i32
  ret i32 %number
}}

define i32 @stand_in_team() {{
  %team = load volatile i64, ptr @w_team
  %number = trunc i64 %team to i32
  ret i32 %number
}}
"""


@dataclass(frozen=True)
class StandIn:
    """The compiled module of `stand_in_ir`. Only one call may run at a time."""

    engine: Any
    """The owner of the code."""
    arguments: int
    addresses: dict[str, int]
    """The functions of the switch by symbol: the argument for `loader.use_openmp`."""
    changes: ByteChanges
    """Tells which bytes a share has written."""
    _own: dict[str, int]
    """The functions of the stand-in by symbol."""
    _words: dict[str, ctypes.c_int64]
    _begin: Any
    _resume: Any
    _share: Any

    def switch_to(self, addresses: Mapping[str, int] | None = None) -> None:
        """Make the functions of the switch jump to `addresses`, by symbol, or to the stand-in if it
        is None. No kernel may run now."""
        for symbol, address in (self._own if addresses is None else addresses).items():
            self._words[symbol].value = address

    def begin(self, function: int, pointers: Sequence[int], stack: int, size_bytes: int) -> bool:
        """Start `function(*pointers)` on the stack at `stack`. Return whether the call has
        ended."""
        padding = [None] * (self.arguments - len(pointers))
        argv = (ctypes.c_void_p * self.arguments)(*pointers, *padding)
        return bool(self._begin(function, argv, stack, size_bytes))

    def resume(self) -> bool:
        """Continue the call after a region. Return whether the call has ended."""
        return bool(self._resume())

    def share(self, thread: int, team: int, stack: int, size_bytes: int) -> None:
        """Run the share of one thread of the region on the stack at `stack`."""
        self._share(thread, team, stack, size_bytes)

    @property
    def status(self) -> int:
        """The return value of the call after it has ended."""
        return self._words["status"].value

    @property
    def region(self) -> int:
        """The function of the region at which the call stopped."""
        return self._words["region"].value

    @property
    def requested_threads(self) -> int:
        """The number of threads that the region requests, or 0 for all threads."""
        return self._words["asked"].value

    @property
    def frame(self) -> int:
        """The start of the frames of the region's caller, which extend to the end of the stack."""
        return self._words["frame"].value


def stand_in(engine: Any, arguments: int) -> StandIn:
    """Return the stand-in in `engine`, which contains the code of `stand_in_ir(arguments)`."""
    i64, void = ctypes.c_int64, ctypes.c_void_p
    types = {
        "begin": ctypes.CFUNCTYPE(i64, void, void, void, i64),
        "resume": ctypes.CFUNCTYPE(i64),
        "share": ctypes.CFUNCTYPE(None, i64, i64, void, i64),
    }
    functions = {name: kind(engine.get_function_address(name)) for name, kind in types.items()}
    places = {name: f"w_{name}" for name in _WORDS}
    places |= {symbol: f"w_to_{name}" for symbol, (name, _, _) in _FUNCTIONS.items()}
    words = {
        name: i64.from_address(engine.get_global_value_address(place))
        for name, place in places.items()
    }

    def addresses_of(kind: str) -> dict[str, int]:
        return {
            symbol: engine.get_function_address(f"{kind}_{name}")
            for symbol, (name, _, _) in _FUNCTIONS.items()
        }

    return StandIn(
        engine, arguments, addresses_of("switch"), byte_changes(engine),
        addresses_of("stand_in"), words,
        functions["begin"], functions["resume"], functions["share"],
    )  # fmt: skip
