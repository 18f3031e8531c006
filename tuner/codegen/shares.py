"""The function that the OpenMP runtime calls on every thread. It runs the thread's share of the
iterations."""

from __future__ import annotations

from tilewright.schedules.lowering.storage import WorkspacePlan

from .module import ModuleText
from .text import FunctionText


def thread_function(
    module: ModuleText,
    plan: WorkspacePlan,
    name: str,
    arguments: int,
    outer: int,
    trips: int | None,
) -> str:
    """Return the text of the function `name_thread`, which calls `name` for one thread's share of
    the iterations.

    Its argument is a record: `arguments` pointers, the workspace, `outer` loop variables and, if
    `trips` is None, the number of iterations. The iterations are divided by the number of threads
    that the runtime provides, so the output is complete even if that is fewer than requested.
    """
    text = FunctionText()
    call: list[str] = []
    for n in range(arguments + 1 + outer):
        type_ = "ptr" if n <= arguments else "i64"
        slot = text.assign(f"getelementptr i64, ptr %record, i64 {n}", "p")
        value = text.assign(f"load {type_}, ptr {slot}, align 8", "a")
        call.append(f"{type_} {value}")
        if n == arguments:
            workspace = value
    count_of_trips = str(trips)
    if trips is None:
        slot = text.assign(f"getelementptr i64, ptr %record, i64 {arguments + 1 + outer}", "p")
        count_of_trips = text.assign(f"load i64, ptr {slot}, align 8", "a")
    for function in ("omp_get_thread_num", "omp_get_num_threads"):
        module.intrinsic(function, "i32", ())
    me = text.assign("call i32 @omp_get_thread_num()", "t")
    count = text.assign("call i32 @omp_get_num_threads()", "t")
    me, count = (text.assign(f"sext i32 {x} to i64", "t") for x in (me, count))
    own = text.assign(f"mul i64 {me}, {plan.private_bytes}", "t")
    own = text.assign(f"add i64 {own}, {plan.shared_bytes}", "t")
    mine = text.assign(f"getelementptr i8, ptr {workspace}, i64 {own}", "p")
    call.insert(arguments + 1, f"ptr {mine}")
    for position in (me, text.assign(f"add i64 {me}, 1", "t")):
        scaled = text.assign(f"mul i64 {position}, {count_of_trips}", "t")
        call.append(f"i64 {text.assign(f'udiv i64 {scaled}, {count}', 't')}")
    text.add(f"  call void @{name}({', '.join(call)})")
    text.add("  ret void")
    return f"define internal void @{name}_thread(ptr %record) nounwind {{\n{text.body()}\n}}"
