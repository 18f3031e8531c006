"""The LLVM module of a kernel: functions, declarations, constants, and the memory it needs."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.schedules.algebra.scalar import BinaryOp, UnaryOp
from tilewright.schedules.dtypes import DType
from tilewright.schedules.lowering.storage import ALIGN_BYTES
from tilewright.schedules.target import Target

from ..isa.instruction_set import InstructionSet, instruction_set
from .math_body import renamed
from .mathlib import function_of_two, math_function
from .overlap import Halves, in_halves
from .text import FunctionText
from .values import Val

ZERO_BYTES = 512
"""Size in bytes of the zeros that masked loads read instead of an array: 64 lanes of 8 bytes."""


MOST_INLINED_LINES = 12_000
"""The greatest number of instructions of math functions that a module inlines. A module with more
instructions calls these functions, because LLVM's time grows faster than the size of a block."""


@dataclass(slots=True)
class ModuleText:
    """The top level of an LLVM module that is being written. Functions are added as complete
    text."""

    target: Target
    instructions: InstructionSet = field(init=False)
    declarations: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    uses_openmp: bool = False
    uses_streams: bool = False
    math_lines: int = 0

    def __post_init__(self) -> None:
        self.instructions = instruction_set(self.target)

    def nontemporal(self) -> str:
        """Return the metadata of a non-temporal store."""
        self.uses_streams = True
        return "!0"

    def intrinsic(self, name: str, result: str, arguments: tuple[str, ...]) -> str:
        """Declare an external function and return its name, with the `@`."""
        self.declarations[name] = f"declare {result} @{name}({', '.join(arguments)})"
        return f"@{name}"

    def math_function(self, op: UnaryOp, dtype: DType, lanes: int) -> str:
        """Define the vector function that computes `op`, and return its name, with the `@`."""
        function = math_function(op, dtype, lanes, self.target)
        self.math_lines += len(function.lines)
        self.definitions.setdefault(function.name, function.text)
        return f"@{function.name}"

    def function_of_two(self, op: BinaryOp, dtype: DType, lanes: int) -> str:
        """Define the vector function that computes `op(x, y)`, and return its name, with the
        `@`."""
        function = function_of_two(op, dtype, lanes)
        self.math_lines += len(function.lines)
        self.definitions.setdefault(function.name, function.text)
        return f"@{function.name}"

    def math_halves(self, op: UnaryOp, x: Val, number: str) -> Halves:
        """Return the instructions that compute `op` of `x`, cut near the middle of their dependence
        chain.

        The first part can be written early (see `overlap`). `number` is appended to the names of
        the new values and must be unique in the function.
        """
        function = math_function(op, x.dtype, x.lanes, self.target)
        halves = in_halves(function.lines, function.result)
        first, _ = renamed(halves.first, "", x.name, f".{number}")
        second, result = renamed(halves.second, halves.result, x.name, f".{number}")
        return Halves(tuple(first), tuple(second), result, halves.live_registers)

    def zeros(self) -> str:
        """Return the address of a constant of zeros."""
        self.definitions.setdefault(
            "zeros",
            f"@zeros = private unnamed_addr constant [{ZERO_BYTES} x i8] zeroinitializer, align 64",
        )
        return "@zeros"

    def text(self) -> str:
        """Return the text of the whole module. The same parts give the same text."""
        parts = [f'target triple = "{self.target.triple}"']
        parts += [self._definition(name) for name in sorted(self.definitions)]
        parts += self.functions
        defined = "\n".join(parts)
        kept = [text for name, text in sorted(self.declarations.items()) if text not in defined]
        marks = ["!0 = !{i32 1}"] if self.uses_streams else []
        return "\n\n".join([*parts, "\n".join([*kept, *marks])]) + "\n"

    def _definition(self, name: str) -> str:
        text = self.definitions[name]
        if self.math_lines <= MOST_INLINED_LINES:
            return text
        return text.replace(" alwaysinline ", " noinline ", 1)


@dataclass(frozen=True, slots=True)
class GeneratedModule:
    """The LLVM IR text of one kernel, and the memory in bytes that its callers must provide."""

    text: str
    workspace_bytes: int
    uses_openmp: bool
    packed_bytes: int = 0
    prepacked_workspace_bytes: int = 0
    """Size of the workspace of the function that computes from packed constant inputs."""


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
