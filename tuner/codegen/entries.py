"""Parts of functions that C calls: checks of pointers, and functions that return sizes."""

from __future__ import annotations

from tilewright.schedules.lowering.storage import ALIGN_BYTES

from .text import FunctionText


def refuse_bad_memory(text: FunctionText, pointer: str) -> None:
    """Write code that returns 1 from the function if `pointer` is null or not aligned."""
    address = text.assign(f"ptrtoint ptr {pointer} to i64", "w")
    low = text.assign(f"and i64 {address}, {ALIGN_BYTES - 1}", "w")
    missing = text.assign(f"icmp eq i64 {address}, 0", "w")
    crooked = text.assign(f"icmp ne i64 {low}, 0", "w")
    bad = text.assign(f"or i1 {missing}, {crooked}", "w")
    refused, accepted = f"refused.{pointer[1:]}", f"accepted.{pointer[1:]}"
    text.add(f"  br i1 {bad}, label %{refused}, label %{accepted}")
    text.start_block(refused)
    text.add("  ret i32 1")
    text.start_block(accepted)


def size_function(name: str, size: int) -> str:
    """Return a function without arguments that returns `size`."""
    return f"define i64 @{name}() nounwind {{\n  ret i64 {size}\n}}"
