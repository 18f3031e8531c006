"""Blind edits of LLVM IR text: one line changed, dropped or given company, found by its spelling.

Each edit is `(what changed, the text after it)`. Some are refused by LLVM's verifier, and some
change nothing that reaches the object file; whoever plants them has to tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

Edited: TypeAlias = Iterator[tuple[str, str]]
Change: TypeAlias = Callable[[str], Iterator[str]]

_ACCESS = re.compile(r"(?P<before>.*\bptr (?:align \d+ )?)(?P<pointer>%[a-z]+\d*)(?P<after>,.*)")
_FLOAT = re.compile(r"0x[0-9A-F]{16}")


def _on_lines(text: str, change: Change) -> Edited:
    """`text` with one line replaced, for every line in a function and every replacement of it.

    An edit is named by the line before and after, register numbers left out, so that its name
    survives unrelated changes of the code generator.
    """
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if not line.startswith("  "):
            continue
        for new in change(line):
            edited = "\n".join([*lines[:i], new, *lines[i + 1 :]])
            yield f"{_anonymous(line)} => {_anonymous(new)}", edited


def _anonymous(line: str) -> str:
    short = re.sub(r"(%[a-z]+)\d+(?:\.\d+)?", r"\1", line)
    short = re.sub(r"\b(loop|done|then)\d+", r"\1", short)
    return " ; ".join(part.strip() for part in short.split("\n"))


def _replacing(pattern: str, *substitutes: str) -> Change:
    """Lines in which `pattern` occurs, with its first occurrence replaced by each substitute."""
    compiled = re.compile(pattern)

    def change(line: str) -> Iterator[str]:
        if compiled.search(line):
            for substitute in substitutes:
                new = compiled.sub(substitute, line, count=1)
                if new != line:
                    yield new

    return change


def _numbers(pattern: str, *steps: int) -> Change:
    """The integer in group 2 of `pattern` (between groups 1 and 3) changed by each of `steps`."""
    compiled = re.compile(pattern)

    def change(line: str) -> Iterator[str]:
        found = compiled.match(line)
        if found:
            for step in steps:
                yield f"{found[1]}{int(found[2]) + step}{found[3]}"

    return change


# Addresses


def gep_constant(text: str) -> Edited:
    """A constant offset, of an element, a row or a buffer in the workspace, is off by one."""
    return _on_lines(text, _numbers(r"(.*getelementptr .*, i64 )(-?\d+)()$", 1, -1))


def overlap_buffers(text: str) -> Edited:
    """A buffer begins where the workspace does."""
    pattern = r"(getelementptr i8, ptr %(?:workspace|private), i64 )\d+"
    return _on_lines(text, _replacing(pattern, r"\g<1>0"))


def stride(text: str) -> Edited:
    """A factor of an index is off by one: a stride, a tile, a thread's part of the workspace."""
    return _on_lines(text, _numbers(r"(.* = mul i64 .*, )(-?\d+)()$", 1, -1))


def offset(text: str) -> Edited:
    return _on_lines(text, _numbers(r"(.* = (?:add|sub) i64 .*, )(-?\d+)()$", 1, -1))


def division(text: str) -> Edited:
    change = _replacing(r"= udiv i64", "= urem i64")
    other = _replacing(r"= urem i64", "= udiv i64")
    yield from _on_lines(text, change)
    yield from _on_lines(text, other)


def displace_access(text: str) -> Edited:
    """A load or store is one element, or one byte, further on or back."""

    def change(line: str) -> Iterator[str]:
        found = _ACCESS.match(line)
        if found is None or not re.search(r"= load |^  store |masked\.(load|store)", line):
            return
        if "%slot" in found["pointer"] or "%record" in found["pointer"]:
            return
        for bytes_ in (4, -4, 1):
            moved = f"  %planted = getelementptr i8, ptr {found['pointer']}, i64 {bytes_}"
            yield f"{moved}\n{found['before']}%planted{found['after']}"

    return _on_lines(text, change)


def past_the_end(text: str) -> Edited:
    """After a store, the next vector or element is written as well, with the same value."""

    def change(line: str) -> Iterator[str]:
        found = re.match(r"  store (<(\d+) x (\w+)>|float|double|i\d+) (\S+), ptr (%\w+), ", line)
        if found is None or "%slot" in found[5] or "%record" in found[5]:
            return
        moved = f"  %planted = getelementptr {found[1]}, ptr {found[5]}, i64 1"
        yield f"{line}\n{moved}\n  store {found[1]} {found[4]}, ptr %planted, align 1"

    return _on_lines(text, change)


def write_input(text: str) -> Edited:
    """A store goes to an input as well, at its very start; nothing says that it may not."""

    def change(line: str) -> Iterator[str]:
        found = re.match(r"  store (float|double|i\d+|<\d+ x \w+>) (\S+), ptr (%\w+), ", line)
        if found is not None and not re.search(r"slot|record", found[3]):
            yield f"{line}\n  store {found[1]} {found[2]}, ptr %arg0, align 1"

    return _on_lines(text.replace("noalias readonly ", ""), change)


def beyond(text: str, argument_bytes: tuple[int, ...], inputs: int) -> Edited:
    """At its end the kernel touches what lies around an argument: reads inputs, writes outputs."""
    at = text.rindex("  ret i32 0")
    for n, size in enumerate(argument_bytes):
        for where in (size, size + 64, size + 4095, -1, -4096):
            pointer = f"  %planted = getelementptr i8, ptr %arg{n}, i64 {where}\n"
            read = "  %lost = load volatile i8, ptr %planted, align 1\n"
            written = "  store volatile i8 0, ptr %planted, align 1\n"
            act = read if n < inputs else written
            yield f"%arg{n} at {where} of {size}", text[:at] + pointer + act + text[at:]


def other_argument(text: str) -> Edited:
    """An address is taken in another buffer."""
    change = _replacing(r"(getelementptr \w+, ptr )%arg0\b", r"\1%arg1")
    back = _replacing(r"(getelementptr \w+, ptr )%(?:arg1|private|workspace)\b", r"\1%arg0")
    yield from _on_lines(text, change)
    yield from _on_lines(text, back)


def align_lie(text: str) -> Edited:
    """A vector access claims an alignment that it does not have in general."""
    wider = _replacing(r"(load <.*|store <.*|call .*masked\..*)align (?:1|2|4|8|16)\b",
                       r"\g<1>align 64")  # fmt: skip
    return _on_lines(text, wider)


# Control flow


def loop_limit(text: str) -> Edited:
    return _on_lines(text, _numbers(r"(.*icmp slt i64 %i\d+, )(\d+)()$", 1, -1))


def compare_predicate(text: str) -> Edited:
    """A test lets one case more or less through, or is turned round."""
    # Loops first: a test turned round could run for ever, one with `sle` runs once more.
    yield from _on_lines(text, _replacing(r"icmp slt i64 (%i\d+)", r"icmp sle i64 \1"))
    yield from _on_lines(text, _replacing(r"icmp sge", "icmp sgt", "icmp slt"))
    yield from _on_lines(text, _replacing(r"icmp eq", "icmp ne"))
    yield from _on_lines(text, _replacing(r"fcmp (\w)lt", r"fcmp \1le"))
    yield from _on_lines(text, _replacing(r"fcmp (\w)gt", r"fcmp \1lt"))


def swap_branches(text: str) -> Edited:
    pattern = r"(br i1 %\w+, )(label %then\d+), (label %done\d+)"
    return _on_lines(text, _replacing(pattern, r"\1\3, \2"))


def phi_start(text: str) -> Edited:
    return _on_lines(text, _replacing(r"(phi i64 \[ )0,", r"\g<1>1,"))


def skip_iterations(text: str) -> Edited:
    return _on_lines(text, _replacing(r"(add nuw nsw i64 %i\d+, )1$", r"\g<1>2"))


def trip_count(text: str) -> Edited:
    yield from _on_lines(text, _replacing(r"llvm\.smin\.i64", "llvm.smax.i64"))
    yield from _on_lines(text, _replacing(r"llvm\.smax\.i64", "llvm.smin.i64"))


def share_bounds(text: str) -> Edited:
    """What a thread takes as its number or the team's is off by one."""
    me = r"(.*= )call i32 (@omp_get_\w+)\(\)$"

    def change(line: str) -> Iterator[str]:
        found = re.match(me, line)
        if found:
            name = found[1].split()[0]
            for step in (1, -1):
                yield f"  %planted = call i32 {found[2]}()\n  {name} = add i32 %planted, {step}"

    return _on_lines(text, change)


# Values


def drop_store(text: str) -> Edited:
    return _on_lines(text, _replacing(r"^  (store|call void @llvm\.masked\.).*$", "  ; dropped"))


def float_operation(text: str) -> Edited:
    yield from _on_lines(text, _replacing(r"= fadd\b", "= fsub"))
    yield from _on_lines(text, _replacing(r"= fsub\b", "= fadd"))
    yield from _on_lines(text, _replacing(r"= fmul\b", "= fadd"))
    yield from _on_lines(text, _replacing(r"= fdiv\b", "= fmul"))


def integer_operation(text: str) -> Edited:
    yield from _on_lines(text, _replacing(r"= add (<\d+ x i\d+>|i8|i16|i32)", r"= sub \1"))
    yield from _on_lines(text, _replacing(r"= mul (<\d+ x i\d+>|i8|i16|i32)", r"= add \1"))
    yield from _on_lines(text, _replacing(r"= (sext) (<|i8|i32)", r"= zext \2"))
    yield from _on_lines(text, _replacing(r"= (zext) (<|i8|i16|i32)", r"= sext \2"))
    yield from _on_lines(text, _replacing(r"= lshr", "= ashr"))
    yield from _on_lines(text, _replacing(r"= shl", "= lshr"))


def swap_float_operands(text: str) -> Edited:
    pattern = r"(= f(?:sub|div) (?:[a-z]+ )*(?:<\d+ x \w+>|float|double)) (\S+), (\S+)$"
    return _on_lines(text, _replacing(pattern, r"\1 \3, \2"))


def fma_operand(text: str) -> Edited:
    """A multiply-add takes one operand twice, or adds what it should multiply with."""
    operand = r"((?:<\d+ x \w+>|float|double)) ([^,()]+(?:\([^)]*\))?)"
    pattern = rf"(@llvm\.fm(?:a|uladd)\.\w+\(){operand}, {operand}, {operand}\)"
    return _on_lines(
        text,
        _replacing(
            pattern,
            r"\1\2 \3, \4 \3, \6 \7)",
            r"\1\2 \3, \4 \5, \6 \5)",
            r"\1\2 \3, \4 \7, \6 \5)",
        ),
    )


def logic(text: str) -> Edited:
    """Two conditions are joined the other way."""
    yield from _on_lines(text, _replacing(r"= and (i1|<\d+ x i1>)", r"= or \1"))
    yield from _on_lines(text, _replacing(r"vector\.reduce\.or", "vector.reduce.and"))


def swap_select(text: str) -> Edited:
    type_ = r"(?:<\d+ x \w+>|\w+)"
    value = rf"{type_} (?:splat \([^)]*\)|<[^>]*>|\S+)"
    pattern = rf"(= select [^,]+, )({value}), ({value})$"
    return _on_lines(text, _replacing(pattern, r"\1\3, \2"))


def float_constant(text: str) -> Edited:
    """A constant becomes 1, or 0 if it was."""

    def change(line: str) -> Iterator[str]:
        for found in _FLOAT.finditer(line):
            new = "0x3FF0000000000000" if found[0] == "0x" + "0" * 16 else "0x" + "0" * 16
            yield line[: found.start()] + new + line[found.end() :]

    return _on_lines(text, change)


# Lanes


def mask_constant(text: str) -> Edited:
    """One lane of a constant mask is turned round: the first, or the one where it changes."""

    def change(line: str) -> Iterator[str]:
        for found in re.finditer(r"<(i1 (?:true|false)(?:, i1 (?:true|false))+)>", line):
            bits = [part.split()[1] == "true" for part in found[1].split(", ")]
            edges = [i for i in range(1, len(bits)) if bits[i] != bits[i - 1]]
            for at in [0, *edges, *(i - 1 for i in edges)]:
                flipped = [b != (i == at) for i, b in enumerate(bits)]
                new = ", ".join(f"i1 {'true' if b else 'false'}" for b in flipped)
                yield f"{line[: found.start()]}<{new}>{line[found.end() :]}"

    return _on_lines(text, change)


def lane_numbers(text: str) -> Edited:
    """The numbers of the lanes begin one later or earlier."""

    def change(line: str) -> Iterator[str]:
        found = re.search(r"<(i32 -?\d+(?:, i32 -?\d+)+)>", line)
        if found and "shufflevector" not in line:
            numbers = [int(part.split()[1]) for part in found[1].split(", ")]
            for step in (1, -1):
                new = ", ".join(f"i32 {n + step}" for n in numbers)
                yield f"{line[: found.start()]}<{new}>{line[found.end() :]}"

    return _on_lines(text, change)


def clamp(text: str) -> Edited:
    """A clamp before lanes are compared lets too little through."""

    def change(line: str) -> Iterator[str]:
        found = re.match(r"(.*llvm\.(?:smax|smin)\.i64\(i64 %x\d+, i64 )(-?\d+)(\).*)", line)
        if found and int(found[2]):
            yield f"{found[1]}{int(found[2]) // abs(int(found[2]))}{found[3]}"

    return _on_lines(text, change)


def drop_mask(text: str) -> Edited:
    pattern = r"(call .*masked\.(?:load|store)\..*, <(\d+) x i1>) %\w+"
    return _on_lines(text, _replacing(pattern, r"\1 splat (i1 true)"))


def shuffle(text: str) -> Edited:
    """A broadcast takes another lane; a mask of other lanes begins one later."""
    zero = _replacing(r"(shufflevector .*, <(\d+) x i32> )zeroinitializer$",
                      r"\1splat (i32 1)")  # fmt: skip

    def turned(line: str) -> Iterator[str]:
        found = re.match(r"(.*shufflevector .*<\d+ x i32> <)(i32 \d+(?:, i32 \d+)+)(>.*)", line)
        if found:
            lanes = found[2].split(", ")
            yield f"{found[1]}{', '.join([*lanes[1:], lanes[0]])}{found[3]}"

    yield from _on_lines(text, zero)
    yield from _on_lines(text, turned)


def lane_position(text: str) -> Edited:
    return _on_lines(text, _numbers(r"(.* = (?:insert|extract)element .*, i64 )(\d+)()$", 1))


OPERATORS: tuple[Callable[[str], Edited], ...] = (
    gep_constant, overlap_buffers, stride, offset, division, displace_access, past_the_end,
    write_input, other_argument, align_lie, loop_limit, compare_predicate, swap_branches,
    phi_start, skip_iterations, trip_count, share_bounds, drop_store, float_operation,
    integer_operation, swap_float_operands, fma_operand, logic, swap_select, float_constant,
    mask_constant, lane_numbers, clamp, drop_mask, shuffle, lane_position,
)  # fmt: skip
