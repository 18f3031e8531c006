"""The exported functions of a kernel with constant inputs.

    NAME(inputs, outputs, workspace)                      packs into the workspace, then computes
    NAME_prepack(constant inputs, packed)                 packs
    NAME_prepacked(other inputs, outputs, packed, workspace)   computes

They call the same two internal functions, `NAME_pack` and `NAME_main`, so results with and without
prepacking are equal. The parameters depend only on the workload: a constant input that the schedule
does not pack is copied into `packed`, so `NAME_prepacked` needs no constant input.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.schedules.lowering.storage import PackedPlan, plan_packed, plan_storage
from tilewright.schedules.nest.loop_ir import Nest
from tilewright.schedules.nest.prepacking import split_prepack

from .abi import prepack_symbol, prepacked_symbol
from .module import GeneratedModule, ModuleText, refuse_bad_memory, size_function
from .nest_writer import NestWriter
from .text import FunctionText


def write_with_constants(nest: Nest, module: ModuleText, symbol: str) -> GeneratedModule:
    """Return the module of a nest with constant inputs. It has the exported and the internal
    functions."""
    parts = split_prepack(nest)
    packed = plan_packed(nest, parts)
    ahead = tuple((buffer, packed.buffers[buffer.name]) for buffer in parts.buffers)
    main = replace(nest, body=parts.rest)
    storage = plan_storage(main, ahead)
    NestWriter(main, module, f"{symbol}_main", storage).write_part()
    if parts.copies:
        pack = replace(nest, body=parts.copies)
        pack_storage = plan_storage(pack, ahead)
        assert not pack_storage.workspace.total_bytes(module.target.threads)  # it gets no workspace
        NestWriter(pack, module, f"{symbol}_pack", pack_storage).write_part()
    own_bytes = storage.workspace.total_bytes(module.target.threads)
    entries = _Entries(nest, symbol, packed, own_bytes)
    module.functions += [
        entries.whole(),
        entries.prepack(module),
        entries.prepacked(),
        size_function(f"{symbol}_workspace_bytes", own_bytes + packed.buffer_bytes),
        size_function(f"{symbol}_packed_bytes", packed.total_bytes),
        size_function(f"{prepacked_symbol(symbol)}_workspace_bytes", own_bytes),
    ]
    return GeneratedModule(
        module.text(),
        own_bytes + packed.buffer_bytes,
        module.uses_openmp,
        packed_bytes=packed.total_bytes,
        prepacked_workspace_bytes=own_bytes,
    )


class _Entries:
    """A writer of the exported functions. `own_bytes` is the size of the workspace of `NAME_main`.
    In the workspace of NAME, packed data follow it."""

    def __init__(self, nest: Nest, symbol: str, packed: PackedPlan, own_bytes: int) -> None:
        self.symbol = symbol
        self.packed = packed
        self.own_bytes = own_bytes
        self.inputs = [(f"%arg{n}", tensor) for n, tensor in enumerate(nest.inputs)]
        first = len(self.inputs)
        self.outputs = [f"%arg{first + n}" for n in range(len(nest.outputs))]

    def whole(self) -> str:
        text = FunctionText()
        if self.own_bytes + self.packed.buffer_bytes:
            refuse_bad_memory(text, "%workspace")
        names = [name for name, _ in self.inputs]
        made = "null"
        if self.packed.buffer_bytes:
            made = _behind(text, "%workspace", self.own_bytes)
            unused = ["null"] * len(self.outputs)
            self._call(text, "pack", [*names, *unused, made, "null"])
        self._call(text, "main", [*names, *self.outputs, made, "%workspace"])
        inputs = [f"ptr noalias readonly {name}" for name in names]
        return self._function(text, self.symbol, [*inputs, *self._writable("%workspace")])

    def prepack(self, module: ModuleText) -> str:
        text = FunctionText()
        if self.packed.total_bytes:
            refuse_bad_memory(text, "%packed")
        if self.packed.buffer_bytes:
            given = [name if tensor.constant else "null" for name, tensor in self.inputs]
            self._call(text, "pack", [*given, *["null"] * len(self.outputs), "%packed", "null"])
        copy = "llvm.memcpy.p0.p0.i64"
        for name, tensor in self.inputs:
            if tensor.name in self.packed.copies:
                module.intrinsic(copy, "void", ("ptr", "ptr", "i64", "i1"))
                place = _behind(text, "%packed", self.packed.copies[tensor.name])
                text.add(
                    f"  call void @{copy}(ptr align 64 {place},"
                    f" ptr align {tensor.dtype.bytes} {name}, i64 {tensor.bytes}, i1 false)"
                )
        constants = [f"ptr noalias readonly {n}" for n, tensor in self.inputs if tensor.constant]
        return self._function(
            text, prepack_symbol(self.symbol), [*constants, "ptr noalias %packed"]
        )

    def prepacked(self) -> str:
        text = FunctionText()
        if self.packed.total_bytes:
            refuse_bad_memory(text, "%packed")
        if self.own_bytes:
            refuse_bad_memory(text, "%workspace")
        given = []
        for name, tensor in self.inputs:
            if tensor.name in self.packed.copies:
                given.append(_behind(text, "%packed", self.packed.copies[tensor.name]))
            else:
                given.append("null" if tensor.constant else name)
        self._call(text, "main", [*given, *self.outputs, "%packed", "%workspace"])
        inputs = [f"ptr noalias readonly {n}" for n, tensor in self.inputs if not tensor.constant]
        parameters = [*inputs, *self._writable("%workspace", "ptr noalias readonly %packed")]
        return self._function(text, prepacked_symbol(self.symbol), parameters)

    def _writable(self, workspace: str, *before: str) -> list[str]:
        return [*(f"ptr noalias {n}" for n in self.outputs), *before, f"ptr noalias {workspace}"]

    def _call(self, text: FunctionText, part: str, pointers: list[str]) -> None:
        given = ", ".join(f"ptr {pointer}" for pointer in pointers)
        text.add(f"  call void @{self.symbol}_{part}({given})")

    def _function(self, text: FunctionText, name: str, parameters: list[str]) -> str:
        text.add("  ret i32 0")
        return f"define i32 @{name}({', '.join(parameters)}) nounwind {{\n{text.body()}\n}}"


def _behind(text: FunctionText, pointer: str, offset: int) -> str:
    if not offset:
        return pointer
    return text.assign(f"getelementptr i8, ptr {pointer}, i64 {offset}", "p")
