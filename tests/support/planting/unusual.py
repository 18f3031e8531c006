"""Mistakes that show in unusual circumstances only: what memory held before, where arrays lie, what
other threads do, NaN, sizes far from one, numbers of threads, calls before.

Planted in generated kernels of expressions whose every mistake of a kind is wrong, whatever the
schedule: `unusual_bases`. `plant_unusual` gives the mutants, each wrong by construction.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from tests.support.planting.bases import TARGET, Base
from tests.support.planting.nests import on_values
from tests.support.planting.run import SYMBOL, Mutant
from tilewright.schedules.algebra.scalar import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Const,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.frontend.notation import from_notation, parse_tensor_spec
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Candidate
from tilewright.tuner.codegen.generate import generate
from tilewright.tuner.codegen.module import GeneratedModule

_MANY_CORES = replace(TARGET, cores=16)
_MAGIC = 0x1234_5678_9ABC_DEF
Edits = Iterator[tuple[str, GeneratedModule]]


@dataclass(frozen=True)
class Unusual:
    """An expression, its inputs, and the operators that are wrong wherever they are planted in it:
    by `arrays` of any kernel, and by `kinds` of this one."""

    name: str
    expression: str
    tensors: tuple[str, ...]
    kinds: tuple[str, ...]


ARRAYS = ("elsewhere", "elsewhere_together", "after_calls", "for_one_team", "writes_back")
_LOST = ("loses_nan", "loses_infinity")
EXPRESSIONS = (
    Unusual("sum", "Y[i,j] = A[i,j] + B[i,j]", ("A=f32[{m},{n}]", "B=f32[{m},{n}]"), _LOST),
    Unusual("product", "C[i,j] += A[i,k] * B[k,j]", ("A=f32[{m},{k}]", "B=f32[{k},{n}]"), _LOST),
    Unusual("least", "Y[i] min= X[i,j]", ("X=f32[{m},{n}]",), ("fresh",)),
    Unusual("least down", "Y[j] min= X[i,j]", ("X=f32[{m},{n}]",), ("fresh",)),
    Unusual("greatest", "Y[i] max= X[i,j]", ("X=f32[{m},{n}]",), ("fresh",)),
    Unusual("greatest f64", "Y[i] max= X[i,j]", ("X=f64[{m},{n}]",), ("fresh",)),
    Unusual("least i32", "Y[i] min= X[i,j]", ("X=i32[{m},{n}]",), ("fresh",)),
    Unusual("quotient", "Y[i,j] = X[i,j] / Z[i,j]", ("X=f32[{m},{n}]", "Z=f32[{m},{n}]"),
            ("bends", "loses_nan")),
    Unusual("exp", "Y[i,j] = exp(X[i,j])", ("X=f32[{m},{n}]",), ("bends", "loses_nan")),
    Unusual("sum of exp", "Y[i] += exp(X[i,j])", ("X=f32[{m},{n}]",), ("bends",)),
    Unusual("sqrt", "Y[i,j] = sqrt(X[i,j])", ("X=f32[{m},{n}]",), ("bends",)),
    Unusual("log", "Y[i,j] = log(X[i,j]) * 0.5", ("X=f32[{m},{n}]",), ("bends",)),
    Unusual("sigmoid f64", "Y[i,j] = sigmoid(X[i,j])", ("X=f64[{m},{n}]",), ("bends",)),
    Unusual("whole", "Y[i,j] = i32(X[i,j])", ("X=f32[{m},{n}]",), ("loses_into_integers",)),
    Unusual("gated", "C[i,j] += A[i,k] * B[k,j]; Y[i,j] = sigmoid(C[i,j] + D[j])",
            ("A=f32[{m},{k}]", "B=f32[{k},{n}]", "D=f32[{n}]"), ("loses_nan",)),
)  # fmt: skip


def unusual_bases(
    seed: int, threads: tuple[int, ...] = (1, 2, 12)
) -> Iterator[tuple[Base, Unusual]]:
    """Each expression of sizes drawn by chance, with a schedule drawn by chance."""
    rng = np.random.default_rng(seed)
    for each in EXPRESSIONS:
        sizes = {"m": int(rng.integers(40, 60)), "n": int(rng.integers(17, 90))}
        sizes["k"] = int(rng.integers(5, 30))
        specs = [parse_tensor_spec(t.format(**sizes)) for t in each.tensors]
        workload = from_notation(each.expression, specs).normalised()
        for team in threads:
            space = space_for(workload, _MANY_CORES.with_threads(team))
            while True:
                sketch = space.sketches[number := int(rng.integers(len(space.sketches)))]
                setting = tuple(int(rng.integers(len(k.values))) for k in sketch.knobs)
                if not sketch.feasible(np.array([setting]))[0]:
                    continue
                with suppress(ScheduleError):
                    trace = space.trace(Candidate(number, setting))
                    name = f"{each.name} {sizes['m']}x{sizes['n']}, {team} threads"
                    yield Base(name, workload, trace, space.target), each
                    break


def plant_unusual(base: Base, what: Unusual, seed: int, each: int) -> list[Mutant]:
    """Up to `each` mistakes of every kind in `base`."""
    right = generate(lower(base.workload, base.trace), base.target, SYMBOL)
    planted = []
    for operator in (*ARRAYS, *what.kinds):
        found = list(OPERATORS[operator](base, right))
        chance = random.Random(f"{seed} {base.name} {operator}")
        for edit, made in chance.sample(found, min(each, len(found))):
            planted.append(Mutant(base.name, operator, edit, made.text, made, "text", base.trace))
    return planted


# --- what is changed at the end of a call ----------------------------------------------------


def _spoiled(base: Base, made: GeneratedModule, condition: str) -> GeneratedModule:
    """An element in the middle of the output is changed where `condition` sets `%planted.c`."""
    (output,) = base.workload.output_tensors
    number, element = len(base.workload.inputs), output.dtype.bytes
    byte = output.elements // 2 * element + element - 1
    at = made.text.rindex("  ret i32 0")
    code = f"""{condition}
  %planted.p = getelementptr i8, ptr %arg{number}, i64 {byte}
  %planted.v = load i8, ptr %planted.p
  %planted.x = select i1 %planted.c, i8 64, i8 0
  %planted.w = xor i8 %planted.v, %planted.x
  store i8 %planted.w, ptr %planted.p
"""
    return replace(made, text=made.text[:at] + code + made.text[at:])


def elsewhere(base: Base, made: GeneratedModule) -> Edits:
    """Wrong if one array begins at some place of a line."""
    for n, tensor in enumerate(base.workload.arguments):
        step = max(tensor.dtype.bytes, 4)
        for place in range(0, 64, step):
            code = f"""  %planted.a = ptrtoint ptr %arg{n} to i64
  %planted.o = and i64 %planted.a, {64 - min(step, 4)}
  %planted.c = icmp eq i64 %planted.o, {place}"""
            yield f"%arg{n} at {place}", _spoiled(base, made, code)


def elsewhere_together(base: Base, made: GeneratedModule) -> Edits:
    """Wrong if two arrays begin at places that differ in certain bits, or both at quarters."""
    count = len(base.workload.arguments)
    step = max(*(t.dtype.bytes for t in base.workload.arguments), 4)
    for a in range(count):
        for b in range(a):
            both = f"""  %planted.a = ptrtoint ptr %arg{a} to i64
  %planted.b = ptrtoint ptr %arg{b} to i64
"""
            for differ in range(step, 64, step):
                code = f"""{both}  %planted.d = xor i64 %planted.a, %planted.b
  %planted.o = and i64 %planted.d, {64 - step}
  %planted.c = icmp eq i64 %planted.o, {differ}"""
                yield f"%arg{a} and %arg{b} differ by {differ}", _spoiled(base, made, code)
            for first in (0, 16, 32, 48):
                for second in (0, 16, 32, 48):
                    code = f"""{both}  %planted.o = and i64 %planted.a, 63
  %planted.q = and i64 %planted.b, 63
  %planted.e = icmp eq i64 %planted.o, {first}
  %planted.f = icmp eq i64 %planted.q, {second}
  %planted.c = and i1 %planted.e, %planted.f"""
                    edit = f"%arg{a} at {first}, %arg{b} at {second}"
                    yield edit, _spoiled(base, made, code)


def after_calls(base: Base, made: GeneratedModule) -> Edits:
    """Wrong at a later call on the same workspace, where calls are counted."""
    at = -(-made.workspace_bytes // 64) * 64
    for number in (2, 3, 17, 50, 100, 301):
        code = f"""  %planted.s = getelementptr i8, ptr %workspace, i64 {at}
  %planted.m = getelementptr i8, ptr %workspace, i64 {at + 8}
  %planted.g = load volatile i64, ptr %planted.m
  %planted.k = icmp eq i64 %planted.g, {_MAGIC}
  %planted.n = load volatile i64, ptr %planted.s
  %planted.o = select i1 %planted.k, i64 %planted.n, i64 0
  %planted.r = add i64 %planted.o, 1
  store volatile i64 %planted.r, ptr %planted.s
  store volatile i64 {_MAGIC}, ptr %planted.m
  %planted.c = icmp eq i64 %planted.r, {number}"""
        spoiled = _spoiled(base, made, code)
        yield f"call {number}", replace(spoiled, workspace_bytes=at + 64)


def for_one_team(base: Base, made: GeneratedModule) -> Edits:
    """In a team of some size, one thread does the share of the one before it."""
    call = re.search(r"  (%\w+) = call i32 @omp_get_thread_num\(\)\n", made.text)
    if call is None or "kernel_region2" in made.text:
        return
    units = re.search(r"= mul i64 %\w+, (\d+)\n  %\w+ = udiv i64", made.text)
    asked = re.search(r"@GOMP_parallel\(.*, i32 (\d+), i32 0\)", made.text)
    assert asked is not None
    if units is None:  # shares of another form
        return
    shared = int(units[1])
    for team in range(2, int(asked[1]) + 1):
        for thread in sorted({1, team // 2, team - 1}):
            if (thread + 1) * shared // team == thread * shared // team:
                continue  # there is nothing that it leaves out
            code = f"""  %planted.t = call i32 @omp_get_thread_num()
  %planted.n = call i32 @omp_get_num_threads()
  %planted.a = icmp eq i32 %planted.n, {team}
  %planted.b = icmp eq i32 %planted.t, {thread}
  %planted.c = and i1 %planted.a, %planted.b
  {call[1]} = select i1 %planted.c, i32 {thread - 1}, i32 %planted.t
"""
            text = made.text[: call.start()] + code + made.text[call.end() :]
            yield f"thread {thread} of {team}", replace(made, text=text)


# --- what is changed where something is read or written ---------------------------------------


def _roots(text: str) -> dict[str, str]:
    """Pointers of a function by what they are computed from, for each line's function: names are
    unique in a module's functions, as the generator counts on."""
    pattern = r"  (%\w+) = (?:getelementptr \w+, ptr|select i1 %\w+, ptr) (%\w+)"
    return dict(re.findall(pattern, text))


def _functions(text: str) -> Iterator[tuple[int, str]]:
    for found in re.finditer(r"^define .*?^}", text, re.M | re.S):
        yield found.start(), found[0]


def _accesses(made: GeneratedModule, pattern: str, argument: str) -> Iterator[re.Match[str]]:
    """Lines of regions that `pattern` matches whose pointer, its group `pointer`, is derived from
    `argument`; positions are those in the text."""
    for start, function in _functions(made.text):
        roots = _roots(function)
        for found in re.compile(pattern, re.M).finditer(made.text, start, start + len(function)):
            pointer = found["pointer"]
            while pointer in roots:
                pointer = roots[pointer]
            if pointer == argument:
                yield found


def writes_back(base: Base, made: GeneratedModule) -> Edits:
    """Every thread of a region reads some bytes of the output, which one of them writes, and stores
    them again at its end."""
    output = base.workload.output_tensors[0]
    number = len(base.workload.inputs)
    call = r"  call void @kernel_region\d+\(ptr (?P<pointers>[^i)]*).*\n  ret void\n"
    for found in re.finditer(call, made.text):
        pointer = found["pointers"].split("ptr ")[number].strip(", ")
        for kind, size in (("i8", 1), ("i32", 4), ("<8 x float>", 32), ("<4 x i8>", 4)):
            for part in range(1, 40):
                at = (output.bytes - size) * part // 40 // output.dtype.bytes * output.dtype.bytes
                place = f"  %planted.p = getelementptr i8, ptr {pointer}, i64 {at}\n"
                load = f"  %planted.o = load volatile {kind}, ptr %planted.p, align 1\n"
                store = f"  store volatile {kind} %planted.o, ptr %planted.p, align 1\n"
                work, end = found[0].split("  ret void")
                for when, body in (
                    ("late", work + place + load + store),
                    ("early", place + load + work + store),
                ):
                    text = f"{made.text[: found.start()]}{body}  ret void{end}"
                    text += made.text[found.end() :]
                    yield f"{kind} at {at} of {output.bytes}, {when}", replace(made, text=text)


_LOAD = (
    r"  (?P<name>%\w+) = load (?P<type><\d+ x (?:float|double)>|float|double), "
    r"ptr (?P<pointer>%\w+),.*\n"
)


_ZERO = "0x0000000000000000"


def _splat(kind: str, number: str) -> str:
    scalar = re.sub(r"<\d+ x (\w+)>", r"\1", kind)
    return f"splat ({scalar} {number})" if kind.startswith("<") else number


def _bits(kind: str) -> str:
    lanes = re.match(r"<(\d+) x", kind)
    return f"<{lanes[1]} x i1>" if lanes else "i1"


def loses_nan(base: Base, made: GeneratedModule) -> Edits:
    """NaN is read as zero."""
    return _loses(base, made, "NaN")


def loses_infinity(base: Base, made: GeneratedModule) -> Edits:
    """What is infinite is read as the greatest number."""
    return _loses(base, made, "inf")


def _loses(base: Base, made: GeneratedModule, wanted: str) -> Edits:
    most = "0x47EFFFFFE0000000"
    for n, tensor in enumerate(base.workload.inputs):
        for found in _accesses(made, _LOAD, f"%arg{n}"):
            name, kind = found["name"], found["type"]
            loaded = found[0].replace(name, "%planted.l", 1)
            for what, test, value in (
                ("NaN", f"fcmp uno {kind} %planted.l, {_splat(kind, _ZERO)}", _ZERO),
                ("inf", f"fcmp oeq {kind} %planted.l, {_splat(kind, '0x7FF0000000000000')}", most),
            ):
                code = f"""{loaded}  %planted.c = {test}
  {name} = select {_bits(kind)} %planted.c, {kind} {_splat(kind, value)}, {kind} %planted.l
"""
                if what != wanted:
                    continue
                text = made.text[: found.start()] + code + made.text[found.end() :]
                yield f"{what} of {tensor.name}: {found[0].strip()}", replace(made, text=text)


def loses_into_integers(base: Base, made: GeneratedModule) -> Edits:
    """A conversion to an integer makes another number of NaN or of what is infinite."""
    last = r"<\d+ x i32> splat \(i32 2147483647\)"  # of a vector, what is too large comes last
    pattern = (
        r"  (?P<name>%\w+) = (?P<code>call .*@llvm\.fptosi\.sat\.\S+"
        r"\((?P<kind>float) (?P<x>%\w+)\))\n"
        r"|  (?P<large>%\w+) = fcmp olt (?P<kinds><\d+ x float>) .*, (?P<xs>%\w+)\n"
        rf"  (?P<names>%\w+) = (?P<choice>select <\d+ x i1> (?P=large), {last}, .*)\n"
    )
    for found in re.finditer(pattern, made.text):
        single = found["name"] is not None
        name, code, kind, value = found.group(
            *(("name", "code", "kind", "x") if single else ("names", "choice", "kinds", "xs"))
        )
        before = "" if single else found[0].partition("\n")[0] + "\n"
        whole = re.sub(r"float", "i32", kind)
        for what, test in (
            ("NaN", f"fcmp uno {kind} {value}, {_splat(kind, '0x0000000000000000')}"),
            ("inf", f"fcmp oeq {kind} {value}, {_splat(kind, '0x7FF0000000000000')}"),
            ("-inf", f"fcmp oeq {kind} {value}, {_splat(kind, '0xFFF0000000000000')}"),
        ):
            planted = f"""{before}  %planted.v = {code}
  %planted.c = {test}
  {name} = select {_bits(kind)} %planted.c, {whole} {_splat(whole, "7")}, {whole} %planted.v
"""
            text = made.text[: found.start()] + planted + made.text[found.end() :]
            yield f"{what}: {code}", replace(made, text=text)


def fresh(base: Base, made: GeneratedModule) -> Edits:
    """A least or greatest number starts from what the workspace holds, unless that is a NaN."""
    numbers = "0x7FF0000000000000|0xFFF0000000000000|2147483647|-2147483648"
    pattern = (
        r"  store (?P<type>(?:<\d+ x )?(?:float|double|i32)>?) "
        rf"(?:splat \(\w+ (?:{numbers})\)|{numbers}), ptr (?P<pointer>%\w+), align.*\n"
    )
    at = -(-made.workspace_bytes // 64) * 64
    for start, function in _functions(made.text):
        if "%workspace" not in function.split("\n", 1)[0]:
            continue
        for found in re.compile(pattern).finditer(made.text, start, start + len(function)):
            kind = found["type"]
            scalar = re.sub(r"<\d+ x (\w+)>", r"\1", kind)
            known = re.search(numbers, found[0])
            assert known is not None
            code = f"""  %planted.w = getelementptr i8, ptr %workspace, i64 {at}
  %planted.l = load volatile {kind}, ptr %planted.w, align 1
"""
            value = "%planted.l"
            if scalar != "i32":
                code += f"""  %planted.c = fcmp ord {kind} %planted.l, {_splat(kind, _ZERO)}
  %planted.n = select {_bits(kind)} %planted.c, {kind} %planted.l, {kind} {_splat(kind, known[0])}
"""
                value = "%planted.n"
            changed = re.sub(
                r"(splat \([^)]*\)|0x\w+|-?\d+)(, ptr)", rf"{value}\2", found[0], count=1
            )
            text = made.text[: found.start()] + code + changed + made.text[found.end() :]
            yield found[0].strip(), replace(made, text=text, workspace_bytes=at + 64)


# --- what is changed in the nest --------------------------------------------------------------

_BENDS: dict[UnaryOp | BinaryOp, tuple[tuple[str, float], ...]] = {
    UnaryOp.EXP: (("above", 50.0), ("below", -20.0), ("above", 30.0)),
    UnaryOp.SIGMOID: (("below", -20.0), ("below", -300.0)),
    UnaryOp.SQRT: (("above", 1e5), ("below", 1e-3), ("below", 1e-20)),
    UnaryOp.LOG: (("above", 1e5), ("below", 1e-3), ("above", 1e20)),
    BinaryOp.DIV: (("above", 200.0), ("below", -200.0), ("above", 1e10)),
}


def bends(base: Base, made: GeneratedModule) -> Edits:
    """A function or quotient is 2 % off beyond some size of its argument."""

    def change(value: Scalar) -> Iterator[tuple[str, Scalar]]:
        match value:
            case Unary(op, x) | Binary(op, _, x) if op in _BENDS:
                off = Binary(BinaryOp.MUL, value, Const(1.02, value.dtype))
                for side, limit in _BENDS[op]:
                    at = Const(limit, x.dtype)
                    a, b = (at, x) if side == "above" else (x, at)
                    bent = Select(Compare(CompareOp.LT, a, b), off, value)
                    yield f"{op} {side} {limit}", bent
            case _:
                return

    for edit, nest in on_values(base.nest, change):
        with suppress(ScheduleError, AssertionError, KeyError, ValueError):
            yield edit, generate(nest, base.target, SYMBOL)


OPERATORS: dict[str, Callable[[Base, GeneratedModule], Edits]] = {
    f.__name__: f
    for f in (
        elsewhere, elsewhere_together, after_calls, for_one_team, writes_back, loses_nan,
        loses_infinity, loses_into_integers, fresh, bends,
    )
}  # fmt: skip
