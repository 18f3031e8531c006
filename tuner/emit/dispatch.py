"""The exported functions of an emitted object.

The first call detects the CPU's features. Each function then calls the best variant that the CPU
supports, or reports that no variant is supported. The choice is stored as one number that does not
depend on the thread. So concurrent threads may each determine it, and write the same value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..codegen.abi import prepack_symbol, prepacked_symbol, supported_symbol, variant_symbol
from ..isa.x86 import OSXSAVE_BIT, Word, required_bits

NOT_SUPPORTED = 2
"""The return value on a CPU that supports no variant."""

_CPUID_CODE = bytes.fromhex(
    "53"  # push %rbx
    "89f0 89d1"  # mov %esi, %eax; mov %edx, %ecx
    "0fa2"  # cpuid
    "8907 895f04 894f08 89570c"  # mov %eax, (%rdi); %ebx, 4(%rdi); %ecx, 8(%rdi); %edx, 12(%rdi)
    "5bc3"  # pop %rbx; ret
)
_XCR0_CODE = bytes.fromhex("31c9 0f01d0 c3")  # xor %ecx, %ecx; xgetbv; ret
# LLVM has no intrinsic for CPUID, and llvmlite can assemble inline assembly only for the host.
# Therefore these two functions (System V ABI) are machine code. An object then contains the same
# bytes on every machine that builds it.


@dataclass(frozen=True, slots=True)
class DispatchVariant:
    """One variant. Its functions are `symbol`, `symbol_prepack` and so on."""

    label: str
    symbol: str
    needs: tuple[str, ...]
    """The features to detect. It is empty if every CPU of the target has them, or if they cannot be
    detected."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes in bytes of the memory that callers must provide."""

    workspace: int
    packed: int | None = None
    """None if the kernel has no constant inputs."""
    prepacked_workspace: int | None = None
    """None if the kernel has no constant inputs."""


def entries_text(
    symbol: str,
    triple: str,
    choices: Sequence[DispatchVariant],
    sizes: Sizes,
    inputs: Sequence[bool],
    outputs: int,
    *,
    uses_openmp: bool = False,
) -> str:
    """Return the LLVM IR of the exported functions. The same arguments give the same text.

    `choices` are in order of preference. `inputs` has one entry per input: whether it is constant.
    `outputs` is the number of outputs.
    """
    writer = _Writer(symbol, tuple(choices), uses_openmp)
    constants = sum(inputs)
    writer.forward("", symbol, len(inputs) + outputs + 1)
    writer.size(f"{symbol}_workspace_bytes", sizes.workspace)
    if sizes.packed is not None and sizes.prepacked_workspace is not None:
        others = len(inputs) - constants
        prepack, prepacked = prepack_symbol(symbol), prepacked_symbol(symbol)
        writer.forward("_prepack", prepack, constants + 1)
        writer.forward("_prepacked", prepacked, others + outputs + 2)
        writer.size(f"{symbol}_packed_bytes", sizes.packed)
        writer.size(f"{prepacked}_workspace_bytes", sizes.prepacked_workspace)
    writer.supported()
    writer.variant()
    return writer.text(triple)


class _Writer:
    def __init__(
        self, symbol: str, choices: tuple[DispatchVariant, ...], uses_openmp: bool
    ) -> None:
        self.symbol = symbol
        self.choices = choices
        self.uses_openmp = uses_openmp
        self.asks = any(choice.needs for choice in choices)
        self.parts: list[str] = []
        self.declarations: list[str] = []

    def text(self, triple: str) -> str:
        parts = [f'target triple = "{triple}"', *self.declarations, *self.parts]
        if self.asks:
            parts += [f"@{self.symbol}.choice = internal global i32 0, align 4"]
            parts += [self._chosen(), self._detected()]
            asks, reads = f"void @{self.symbol}.cpuid(ptr, i32, i32)", f"i32 @{self.symbol}.xcr0()"
            parts += [_machine_code(asks, _CPUID_CODE, "ret void")]
            parts += [_machine_code(reads, _XCR0_CODE, "ret i32 0")]
        if self.uses_openmp:
            parts += [_serial_after_fork(self.symbol)]
        return "\n\n".join(parts) + "\n"

    def size(self, name: str, size_bytes: int) -> None:
        self.parts.append(f"define i64 @{name}() nounwind {{\n  ret i64 {size_bytes}\n}}")

    def forward(self, suffix: str, name: str, pointers: int) -> None:
        """Define the function `name` with `pointers` parameters. It calls the function of the
        chosen variant whose name ends in `suffix`."""
        types = ", ".join(["ptr"] * pointers)
        parameters = ", ".join(f"ptr %a{n}" for n in range(pointers))
        bodies = []
        for choice in self.choices:
            self.declarations.append(f"declare i32 @{choice.symbol}{suffix}({types})")
            watch = f"  call void @{self.symbol}.watch()\n" if self.uses_openmp else ""
            call = f"  %r# = tail call i32 @{choice.symbol}{suffix}({parameters})\n  ret i32 %r#"
            bodies.append(watch + call)
        self._define("i32", name, parameters, bodies, f"  ret i32 {NOT_SUPPORTED}")

    def supported(self) -> None:
        bodies = ["  ret i32 1"] * len(self.choices)
        self._define("i32", supported_symbol(self.symbol), "", bodies, "  ret i32 0")

    def variant(self) -> None:
        labels = [*(choice.label for choice in self.choices), "none"]
        for number, label in enumerate(labels):
            self.parts.append(
                f"@{self.symbol}.label{number} = private unnamed_addr constant"
                f' [{len(label) + 1} x i8] c"{label}\\00", align 1'
            )
        *bodies, unsupported = [f"  ret ptr @{self.symbol}.label{n}" for n in range(len(labels))]
        self._define("ptr", variant_symbol(self.symbol), "", bodies, unsupported)

    def _define(
        self, result: str, name: str, parameters: str, bodies: Sequence[str], unsupported: str
    ) -> None:
        """Define the function `name`. It is a switch over the variants, which are numbered from
        1."""
        head = f"define {result} @{name}({parameters}) nounwind {{\nentry:\n"
        if not self.asks:
            self.parts.append(head + bodies[0].replace("#", "0") + "\n}")
            return
        cases = " ".join(f"i32 {n}, label %v{n}" for n in range(1, len(bodies) + 1))
        lines = [
            f"  %choice = call i32 @{self.symbol}.chosen()",
            f"  switch i32 %choice, label %unsupported [ {cases} ]",
        ]
        for number, body in enumerate(bodies, start=1):
            lines += [f"v{number}:", body.replace("#", str(number))]
        lines += ["unsupported:", unsupported]
        self.parts.append(head + "\n".join(lines) + "\n}")

    def _chosen(self) -> str:
        """Return the IR of the function that returns the number of the chosen variant.

        The number is determined once. 0 means that it is not yet determined. The number of variants
        + 1 means that none is supported.
        """
        choice = f"ptr @{self.symbol}.choice"
        return f"""define internal i32 @{self.symbol}.chosen() alwaysinline nounwind {{
entry:
  %known = load atomic i32, {choice} monotonic, align 4
  %new = icmp eq i32 %known, 0
  br i1 %new, label %ask, label %done
ask:
  %found = call i32 @{self.symbol}.detected()
  store atomic i32 %found, {choice} monotonic, align 4
  br label %done
done:
  %number = phi i32 [ %known, %entry ], [ %found, %ask ]
  ret i32 %number
}}"""

    def _detected(self) -> str:
        """Return the IR of the function that finds the first variant that the CPU and the operating
        system can run.

        For an unsupported leaf, CPUID returns the highest supported leaf. Therefore bits of a leaf
        are used only if the CPU has this leaf.
        """
        lines = [
            "  %out = alloca [4 x i32], align 16",
            *self._cpuid_leaf("l0", 0, 0),
            *self._cpuid_leaf("l1", 1, 0),
            *self._cpuid_leaf("l7", 7, 0),
            *self._cpuid_leaf("l71", 7, 1),
            *self._cpuid_leaf("e0", 0x80000000, 0),
            *self._cpuid_leaf("e1", 0x80000001, 0),
            "  %has7 = icmp uge i32 %l0.eax, 7",
            "  %some71 = icmp uge i32 %l7.eax, 1",
            "  %has71 = and i1 %has7, %some71",
            "  %hase1 = icmp uge i32 %e0.eax, u0x80000001",
            *_word(Word.LEAF1_ECX, "%l1.ecx", "true"),
            *_word(Word.LEAF7_EBX, "%l7.ebx", "%has7"),
            *_word(Word.LEAF7_ECX, "%l7.ecx", "%has7"),
            *_word(Word.LEAF7_EDX, "%l7.edx", "%has7"),
            *_word(Word.LEAF7_1_EAX, "%l71.eax", "%has71"),
            *_word(Word.EXTENDED1_ECX, "%e1.ecx", "%hase1"),
            f"  %saves = and i32 %w{Word.LEAF1_ECX:d}, {1 << OSXSAVE_BIT}",
            "  %maysave = icmp ne i32 %saves, 0",
            "  br i1 %maysave, label %save, label %choose",
            "save:",
            f"  %xcr = call i32 @{self.symbol}.xcr0()",
            "  br label %choose",
            "choose:",
            f"  %w{Word.XCR0:d} = phi i32 [ 0, %entry ], [ %xcr, %save ]",
        ]
        best = str(len(self.choices) + 1)
        for number in range(len(self.choices), 0, -1):
            fits = self._fits(number, lines)
            lines.append(f"  %best{number} = select i1 {fits}, i32 {number}, i32 {best}")
            best = f"%best{number}"
        body = "\n".join(lines)
        return (
            f"define internal i32 @{self.symbol}.detected() noinline nounwind {{\nentry:\n{body}\n"
            f"  ret i32 {best}\n}}"
        )

    def _cpuid_leaf(self, name: str, leaf: int, subleaf: int) -> list[str]:
        """Return the code that calls CPUID for one leaf. The results are `%name.eax` and so on."""
        lines = [
            f"  call void @{self.symbol}.cpuid(ptr %out, i32 u0x{leaf:08x}, i32 {subleaf})",
        ]
        for number, register in enumerate(("eax", "ebx", "ecx", "edx")):
            place = f"%{name}.{register}.at"
            lines += [
                f"  {place} = getelementptr i32, ptr %out, i64 {number}",
                f"  %{name}.{register} = load i32, ptr {place}, align 4",
            ]
        return lines

    def _fits(self, number: int, lines: list[str]) -> str:
        """Append tests of the bits that variant `number` needs to `lines`. Return the name of the
        result."""
        fits = "true"
        for word, mask in required_bits(self.choices[number - 1].needs).items():
            name = f"{number}.{word:d}"
            lines += [
                f"  %has{name} = and i32 %w{word:d}, {mask}",
                f"  %is{name} = icmp eq i32 %has{name}, {mask}",
                f"  %fits{name} = and i1 {fits}, %is{name}",
            ]
            fits = f"%fits{name}"
        return fits


def _serial_after_fork(symbol: str) -> str:
    """Return the IR of `symbol.watch`, which is called before every kernel.

    After its first call, forked children run OpenMP regions with one thread. A child has none of
    the threads of its parent's libgomp pool, and would wait for them forever.
    """
    watched = f"ptr @{symbol}.watched"
    return f"""declare i32 @pthread_atfork(ptr, ptr, ptr)

declare void @omp_set_max_active_levels(i32)

@{symbol}.watched = internal global i32 0, align 4

define internal void @{symbol}.watch() alwaysinline nounwind {{
entry:
  %known = load atomic i32, {watched} monotonic, align 4
  %new = icmp eq i32 %known, 0
  br i1 %new, label %first, label %done
first:
  store atomic i32 1, {watched} monotonic, align 4
  call i32 @pthread_atfork(ptr null, ptr null, ptr @{symbol}.forked)
  br label %done
done:
  ret void
}}

define internal void @{symbol}.forked() nounwind {{
entry:
  call void @omp_set_max_active_levels(i32 0)
  ret void
}}"""


def _word(word: Word, source: str, known: str) -> list[str]:
    return [f"  %w{word:d} = select i1 {known}, i32 {source}, i32 0"]


def _machine_code(signature: str, code: bytes, result: str) -> str:
    """Return a function whose code has the given bytes. LLVM adds code after them, which is never
    reached."""
    text = "".join(f"\\{byte:02X}" for byte in code)
    return (
        f'define internal {signature} noinline nounwind prologue [{len(code)} x i8] c"{text}" {{\n'
        f"entry:\n  {result}\n}}"
    )
