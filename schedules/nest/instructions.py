"""Table of instructions: semantics, required features, throughput and LLVM intrinsic of each.

A row determines whether a loop may be executed by the instruction (`call_of`), whether a target has
the instruction, the rate that bounds a kernel's time, and the generated code. All rows are sums of
products:

    for lane in range(lanes):
      for step in range(steps):                             # reduce; absent if there is one step
        sums[lane] += left[steps*lane + step] * right[steps*lane + step]

Sums are contiguous in memory or in registers. The steps of a lane are contiguous in memory. Lanes
are contiguous, or all lanes read the same elements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from ..algebra.affine import ZERO, Index, Ranges, var
from ..algebra.scalar import Binary, BinaryOp, Cast, Load, Reducer, Scalar
from ..dtypes import DType
from ..target import Target
from .editing import simplify_conds
from .finding import all_ranges
from .loop_ir import Buffer, BufferScope, For, LoopKind, Update

EIGHT_BITS = frozenset({DType.I8, DType.U8})


@dataclass(frozen=True, slots=True)
class VectorForm:
    """An encoding of an instruction for vectors of `bits`, or of any width if `bits` is 0.

    A CPU has the encoding if it has all features of one of the sets in `features`. `function` is
    the LLVM intrinsic. If `bits` is 0, the vector type is appended to its name.
    """

    bits: int
    features: tuple[frozenset[str], ...]
    function: str

    def is_on(self, features: Collection[str]) -> bool:
        return any(needed.issubset(features) for needed in self.features)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """The operation `sums[lane] += left[lane, step] * right[lane, step]` for `steps` steps, in
    these types.

    If `rows` is greater than one, the instruction computes `sums[row, lane] += left[row, step] *
    right[lane, step]`.

    Sources of `gain`: Intel, Optimization Reference Manual (VNNI, BF16, AMX); AMD, Software
    Optimization Guide for Zen 4; Arm, Neoverse N2 Software Optimization Guide.
    """

    name: str
    """Also the key of its measured rate in `Probes.peak_gflops`."""
    sums: DType
    left: DType
    right: DType
    steps: int = 1
    rows: int = 1
    gain: float
    """Operations per second, divided by those of the f32 fused multiply-add."""
    bounds: frozenset[DType] = frozenset()
    """The types whose sums of products `gain` limits."""
    brought_by: tuple[str, ...] = ()
    """A CPU has the instruction if it has one of these features; () for all CPUs."""
    architectures: tuple[str, ...] = ()
    """The architectures of the CPUs to which `gain` applies."""
    forms: tuple[VectorForm, ...] = ()
    """The encodings that code generation supports. A row without encodings is only used for
    bounds."""
    is_exact: bool = True
    """Whether the results have the same bits as the results of the loop in the same order of
    summation."""
    sums_first: bool = True
    """Whether the accumulator is the first argument of the intrinsic. Otherwise, it is the last."""

    def semantics(self, lanes: int) -> For:
        """Return the loops that define the instruction, for `lanes` sums per row. Their buffers are
        "sums", "left" and "right"."""
        row, lane, step = (
            var(name) if there else ZERO
            for name, there in (("row", self.rows > 1), ("lane", True), ("step", self.steps > 1))
        )
        first = row if self.rows > 1 else lane
        left = Load("left", (first * self.steps + step,), self.left)
        right = Load("right", (lane * self.steps + step,), self.right)
        sums, product = (row * lanes + lane,), self._product(left, right)
        nest = self._loops("lane", lanes, "step", Update("sums", sums, product, Reducer.SUM))
        return For("row", self.rows, (nest,)) if self.rows > 1 else nest

    def _loops(self, lane: str, lanes: int, step: str, leaf: Update) -> For:
        if self.steps == 1:
            return For(lane, lanes, (leaf,))
        return For(lane, lanes, (For(step, self.steps, (leaf,), reduce=True),))

    def _product(self, a: Load, b: Load) -> Scalar:
        one, other = (x if x.dtype is self.sums else Cast(x, self.sums) for x in (a, b))
        return Binary(BinaryOp.MUL, one, other)

    def is_run_by(self, loop: For, leaf: Update, left: Load, right: Load) -> bool:
        """Return whether `loop` equals the instruction's definition (`semantics`) for the operands
        `left` and `right`, in either order. The accumulator and the guards are those of `leaf`."""
        if (left.dtype, right.dtype) != (self.left, self.right):
            return False
        step = loop.inside.loops[-1].var
        products = (self._product(left, right), self._product(right, left))
        expected = (replace(leaf, value=x, reducer=Reducer.SUM, first=None) for x in products)
        plain = replace(loop, kind=LoopKind.SERIAL)
        return any(plain == self._loops(loop.var, loop.extent, step, x) for x in expected)

    def form_for(self, lanes: int) -> VectorForm | None:
        """Return the encoding whose vectors hold `lanes` sums, or None if there is none."""
        bits = lanes * self.sums.bits
        return next((form for form in self.forms if form.bits in (0, bits)), None)

    def has_form_on(self, features: Collection[str]) -> bool:
        return any(form.is_on(features) for form in self.forms)

    def is_fast_on(self, target: Target) -> bool:
        """Return whether `target` executes the instruction at the rate `gain`."""
        has_it = not self.brought_by or not set(self.brought_by).isdisjoint(target.features)
        return has_it and target.architecture in self.architectures


_X86, _ARM = ("x86_64",), ("aarch64", "arm64")


def _any_of(*features: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset({name}) for name in features)


FMA_F32 = Instruction(
    name="fma.f32", sums=DType.F32, left=DType.F32, right=DType.F32, gain=1.0, sums_first=False,
    forms=(
        VectorForm(0, _any_of("fma", "avx512f", "neon", "v8a", "fp-armv8"), "llvm.fma"),
    ),
)  # fmt: skip
"""Fused multiply-add: `left * right + sums` with one rounding. Code generation emits it in every
sum of float products."""

FMA_F64 = replace(
    FMA_F32, name="fma.f64", sums=DType.F64, left=DType.F64, right=DType.F64, gain=0.5
)

MULTIPLY_ADDS: Mapping[DType, Instruction] = {row.sums: row for row in (FMA_F32, FMA_F64)}

_I32, _F32, _BF16, _F16, _I8, _U8 = (
    DType.I32, DType.F32, DType.BF16, DType.F16, DType.I8, DType.U8,
)  # fmt: skip

INSTRUCTIONS = (
    FMA_F32,
    FMA_F64,
    Instruction(
        name="tdpbusd", sums=_I32, left=_U8, right=_I8, steps=64, rows=16, gain=32.0,
        bounds=EIGHT_BITS, brought_by=("amx-int8",), architectures=_X86,
    ),
    Instruction(
        name="tdpbf16ps", sums=_F32, left=_BF16, right=_BF16, steps=32, rows=16, gain=16.0,
        bounds=frozenset({_BF16}), brought_by=("amx-bf16",), architectures=_X86, is_exact=False,
    ),
    Instruction(
        name="tdpfp16ps", sums=_F32, left=_F16, right=_F16, steps=32, rows=16, gain=16.0,
        bounds=frozenset({_F16}), brought_by=("amx-fp16",), architectures=_X86, is_exact=False,
    ),
    Instruction(
        name="vpdpbusd", sums=_I32, left=_U8, right=_I8, steps=4, gain=4.0, bounds=EIGHT_BITS,
        brought_by=("avx512vnni", "avxvnni", "avxvnniint8"), architectures=_X86,
        forms=(
            VectorForm(512, _any_of("avx512vnni"), "llvm.x86.avx512.vpdpbusd.512"),
            VectorForm(
                256, (frozenset({"avxvnni"}), frozenset({"avx512vnni", "avx512vl"})),
                "llvm.x86.avx512.vpdpbusd.256",
            ),
        ),
    ),
    Instruction(
        name="vdpbf16ps", sums=_F32, left=_BF16, right=_BF16, steps=2, gain=2.0,
        bounds=frozenset({_BF16}), brought_by=("avx512bf16",), architectures=_X86,
        is_exact=False,  # denormal numbers are treated as zero
        forms=(
            VectorForm(512, _any_of("avx512bf16"), "llvm.x86.avx512bf16.dpbf16ps.512"),
            VectorForm(
                256, (frozenset({"avx512bf16", "avx512vl"}),), "llvm.x86.avx512bf16.dpbf16ps.256"
            ),
        ),
    ),
    Instruction(  # for operands that are widened to 16 bits first
        name="vpmaddwd", sums=_I32, left=_I8, right=_I8, steps=2, gain=2.0, bounds=EIGHT_BITS,
        architectures=_X86,
    ),
    Instruction(
        name="smmla", sums=_I32, left=_I8, right=_I8, steps=8, rows=2, gain=8.0, bounds=EIGHT_BITS,
        brought_by=("i8mm",), architectures=_ARM,
    ),
    Instruction(
        name="bfmmla", sums=_F32, left=_BF16, right=_BF16, steps=4, rows=2, gain=4.0,
        bounds=frozenset({_BF16}), brought_by=("bf16",), architectures=_ARM, is_exact=False,
    ),
    Instruction(
        name="sdot", sums=_I32, left=_I8, right=_I8, steps=4, gain=4.0, bounds=EIGHT_BITS,
        brought_by=("dotprod",), architectures=_ARM,
    ),
    Instruction(
        name="smlal", sums=_I32, left=_I8, right=_I8, gain=2.0, bounds=EIGHT_BITS,
        architectures=_ARM,
    ),
)  # fmt: skip
"""All rows; among rows for the same operands, the fastest first."""

BY_NAME: Mapping[str, Instruction] = {row.name: row for row in INSTRUCTIONS}


def fastest_for(operands: DType, target: Target) -> Instruction | None:
    """Return the fastest instruction of `target` for sums of products of type `operands`. Return
    None if the target has only the fused multiply-add of the wide type."""
    rows = (row for row in INSTRUCTIONS if operands in row.bounds)
    return next((row for row in rows if row.is_fast_on(target)), None)


@dataclass(frozen=True, slots=True)
class InstructionCall:
    """A loop that one instruction executes, with the operands that the instruction reads."""

    instruction: Instruction
    form: VectorForm
    loop: For
    leaf: Update
    left: Load
    right: Load

    @property
    def step(self) -> str:
        """The variable of the loop over steps, or over lanes if there is a single step."""
        return self.loop.inside.loops[-1].var

    def is_shared(self, operand: Load) -> bool:
        """Return whether all lanes use the same elements of `operand`."""
        return all(self.loop.var not in i.vars() for i in operand.index)


def call_of(
    loop: For, name: str, buffers: Mapping[str, Buffer], around: Ranges
) -> InstructionCall | str:
    """Return `loop` as a call of the instruction `name`, or the reason why it is not one.

    The loop must equal the instruction's semantics. Operands must be in memory, in the layout of
    the module docstring. Guards must not depend on lane or step. `around` has the ranges of the
    enclosing loops.
    """
    row = BY_NAME.get(name)
    if row is None:
        return f"unknown instruction; choices: {', '.join(BY_NAME)}"
    if not row.is_exact:
        return "the instruction rounds differently from the loop"
    form = row.form_for(loop.extent)
    if form is None:
        widths = ", ".join(str(form.bits) for form in row.forms) or "none"
        return f"{loop.extent} lanes of {row.sums} are not a vector of it (bits: {widths})"
    leaf = loop.inside.leaves[0]
    if isinstance(leaf, Update) and buffers[leaf.buffer].dtype is row.sums:
        for left, right in _factors(leaf.value):
            if row.is_run_by(loop, leaf, left, right):
                call = InstructionCall(row, form, loop, leaf, left, right)
                return _problem(call, buffers, around) or call
    products = (
        f"{row.steps} products of {row.left} and {row.right} to each of its lanes in {row.sums}"
    )
    return f"the loop must add {products}, and do nothing else"


def _factors(value: Scalar) -> Iterator[tuple[Load, Load]]:
    """Yield both orders of the factors of `value` if it is the product of two (cast) loads."""
    if isinstance(value, Binary):
        a, b = (x.x if isinstance(x, Cast) else x for x in (value.a, value.b))
        if isinstance(a, Load) and isinstance(b, Load):
            yield from ((a, b), (b, a))


def _problem(call: InstructionCall, buffers: Mapping[str, Buffer], around: Ranges) -> str:
    """Return the reason why layout, scope or guards of the operands do not fit the instruction, or
    "" if they do."""
    loop, leaf, steps = call.loop, call.leaf, call.instruction.steps
    guards = simplify_conds(leaf.guards, {**around, **all_ranges((loop,))})
    if guards is None or any(g.index.vars() & {loop.var, call.step} for g in guards):
        return f"guards exclude lanes or steps; apply Partition to {loop.var!r} first"
    if _strides(call, buffers[leaf.buffer], leaf.index) not in ((1, 0), (1,)):
        return f"the sums in {leaf.buffer!r} must be contiguous along {loop.var!r}"
    for operand in (call.left, call.right):
        buffer = buffers[operand.tensor]
        if buffer.name == leaf.buffer or buffer.scope is BufferScope.REGISTER:
            return f"its operands must be in memory that it does not write, {buffer.name!r} is not"
        layouts = ((steps, 1), (0, 1)) if steps > 1 else ((1,), (0,))
        if _strides(call, buffer, operand.index) not in layouts:
            at = f"{steps}*{loop.var} + {call.step}" if steps > 1 else loop.var
            return (
                f"elements of {buffer.name!r} must be at offset {at}, or be equal for all"
                f" {loop.var!r}; they are at {buffer.flat_offset(operand.index)}"
            )
    return ""


def _strides(call: InstructionCall, buffer: Buffer, index: Index) -> tuple[int, ...] | None:
    """Return the stride per lane and, if there are several steps, the stride per step, in elements.
    Return None if the offset is not linear in lane and step."""
    offset = buffer.flat_offset(index)
    names = dict.fromkeys((call.loop.var, call.step))
    if not all(offset.is_linear_in(name) for name in names):
        return None
    return tuple(offset.coefficient(name) for name in names)
