"""One masked reduction in the spellings of all front ends: index notation, Python, arrays, JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from math import inf
from typing import Any

import numpy as np

from tilewright.schedules.frontend import expr as x
from tilewright.schedules.frontend.array.arrays import where
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.workload.workload import Workload

N = 24
Test = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Mask:
    """Conditions on a row i and a column k, as text and as functions of two indices, and `shift`:
    the element that is read is A[i, k + i - shift], in which the conditions are those of padding,
    or A[i, k] if it is None."""

    tests: dict[str, Test]
    on_data: bool = False
    shift: int | None = None

    @property
    def column(self) -> str:
        return "k" if self.shift is None else f"k + i - {self.shift}"

    def chosen(self, m: Any) -> Any:
        """Where the mask holds, as an array."""
        i, k = np.indices((N, N))
        every = [test(i, k) for test in self.tests.values()]
        return np.logical_and.reduce([*every, m > 0] if self.on_data else every)


def _band(reach: int) -> dict[str, Test]:
    return {f"k <= i + {reach}": lambda i, k: k <= i + reach,
            f"i <= k + {reach}": lambda i, k: i <= k + reach}  # fmt: skip


def _same_block(size: int) -> Test:
    def test(i: Any, k: Any) -> Any:
        one, other = i // size, k // size
        return one == other if isinstance(one, np.ndarray) else x.eq(one, other)

    return test


def triangle(offset: int, *, on_data: bool = False) -> Mask:
    return Mask({f"k <= i + {offset}": lambda i, k: k <= i + offset}, on_data)


def band(reach: int, *, on_data: bool = False) -> Mask:
    return Mask(_band(reach), on_data)


def blocks(size: int, *, on_data: bool = False) -> Mask:
    return Mask({f"i // {size} == k // {size}": _same_block(size)}, on_data)


def triangles(size: int, *, on_data: bool = False) -> Mask:
    """Triangles in diagonal blocks."""
    return Mask({**blocks(size).tests, **triangle(0).tests}, on_data)


def padding(shift: int, *, on_data: bool = False) -> Mask:
    return Mask(
        {f"k + i >= {shift}": lambda i, k: k + i >= shift,
         f"k + i < {N + shift}": lambda i, k: k + i < N + shift},
        on_data, shift,
    )  # fmt: skip


PRODUCT, SUM, GREATEST = "product", "sum", "greatest"
KINDS = (PRODUCT, SUM, GREATEST)

Spelled = tuple[str, Workload]


def spellings(mask: Mask, kind: str) -> Iterator[Spelled]:
    """The name of each spelling, and its workload, whose inputs are A, [M], [B]."""
    for name, build in (
        ("notation", _notation), ("python", _python), ("array", _arrays), ("document", _documents),
    ):  # fmt: skip
        for spelling, workload in build(mask, kind):
            yield f"{name}: {spelling}", workload


def inputs_of(mask: Mask, kind: str, a: Any, m: Any, b: Any) -> list[Any]:
    return [a, *([m] if mask.on_data else []), *([b] if kind == PRODUCT else [])]


# --- index notation ----------------------------------------------------------------------------


def _notation(mask: Mask, kind: str) -> Iterator[Spelled]:
    sizes = {"A": ("f32", (N, N)), "M": ("f32", (N, N)), "B": ("f32", (N, N))}
    used = ["A", *(["M"] if mask.on_data else []), *(["B"] if kind == PRODUCT else [])]
    tensors = {name: sizes[name] for name in used}
    for name, before, value in _texts(mask, "-inf" if kind == GREATEST else "0.0"):
        if kind == GREATEST and "*" in name:
            continue
        text = {
            PRODUCT: f"Y[i,j] += {value} * B[k,j]",
            SUM: f"Y[i] += {value}",
            GREATEST: f"Y[i] max= {value}",
        }[kind]
        yield name, from_notation(before + text, tensors, {"k": N, "i": N})


def _texts(mask: Mask, otherwise: str) -> Iterator[tuple[str, str, str]]:
    """The name of a spelling, the statements before it, and the masked element."""
    conds = [*mask.tests, *(["M[i,k] > 0"] if mask.on_data else [])]
    element = f"A[i,{mask.column}]"
    words, bits = " && ".join(conds), " & ".join(f"({c})" for c in conds)
    for name, both in {
        "&&": words,
        "&": bits,
        "& backwards": " & ".join(f"({c})" for c in reversed(conds)),
        "~~": f"~(~({words}))",
    }.items():
        yield name, "", f"where({both}, {element}, {otherwise})"
        yield f"number {name} *", "", f"f32({both}) * {element}"
    yield "ones *", "", f"where({words}, 1.0, 0.0) * {element}"
    yield "numbers * each", "", " * ".join([*(f"f32({c})" for c in conds), element])
    yield "numbers * after", "", " * ".join([element, *(f"f32({c})" for c in conds)])
    yield "integers *", "", f"f32({' * '.join(f'({c})' for c in [*conds, 'k >= 0'])}) * {element}"
    for name, order in (("outwards", conds), ("inwards", conds[::-1])):
        yield name, "", reduce(lambda v, c: f"where({c}, {v}, {otherwise})", order, element)
    yield "negated", "", f"where(!({words}), {otherwise}, {element})"
    yield "complement", "", f"where(~({bits}), {otherwise}, {element})"
    opposite = [f"!({c})" for c in conds]
    if not any("==" in c for c in conds):
        yield "none of", "", f"where({' || '.join(opposite)}, {otherwise}, {element})"
        yield (
            "none of the bits",
            "",
            (f"where({' | '.join(f'({c})' for c in opposite)}, {otherwise}, {element})"),
        )
    indices = " && ".join(mask.tests)
    data = " && M[i,k] > 0" if mask.on_data else ""
    yield "mask", f"Q[i,k] = {indices}; ", f"where(Q[i,k]{data}, {element}, {otherwise})"
    yield "mask of bits", f"Q[i,k] = {bits}; ", f"where(Q[i,k], {element}, {otherwise})"
    if not mask.on_data:
        yield "mask of numbers *", f"Q[i,k] = f32({indices}); ", f"Q[i,k] * {element}"


# --- Python ------------------------------------------------------------------------------------


def _python(mask: Mask, kind: str) -> Iterator[Spelled]:
    otherwise = -inf if kind == GREATEST else 0.0
    spelled: dict[str, Callable[[list[Any], Any, Any], Any]] = {
        "&": lambda cs, v, _: x.select(reduce(lambda p, q: p & q, cs), v(), otherwise),
        "all_of": lambda cs, v, _: x.select(x.all_of(*cs), v(), otherwise),
        "not any_of": lambda cs, v, _: x.select(
            x.any_of(*map(x.not_, cs)), otherwise, v()),
        "~": lambda cs, v, _: x.select(~x.all_of(*cs), otherwise, v()),
        "bits": lambda cs, v, _: x.select(
            reduce(lambda p, q: p & q, (x.cast(c, "bool") for c in cs)), v(), otherwise),
        "bits backwards": lambda cs, v, _: x.select(
            reduce(lambda p, q: p & q, (x.cast(c, "bool") for c in cs[::-1])), v(), otherwise),
        "number *": lambda cs, _, w: x.cast(x.all_of(*cs), "f32") * w(),
        "condition *": lambda cs, _, w: x.all_of(*cs) * w(),
        "numbers *": lambda cs, _, w: reduce(lambda p, c: p * x.cast(c, "f32"), cs, w()),
    }  # fmt: skip
    for name, choose in spelled.items():
        if kind == GREATEST and "*" in name:
            continue
        a, m, b = (x.placeholder(name, (N, N)) for name in "AMB")
        k = x.reduce_axis(N, "k")

        guards = "bits" not in name  # bits guard no reads
        masked = partial(_element, mask, choose, guards, a, m, k)
        fn: Any = {
            PRODUCT: lambda i, j, masked=masked, b=b, k=k: x.sum(masked(i) * b[k, j], axis=k),
            SUM: lambda i, masked=masked, k=k: x.sum(masked(i), axis=k),
            GREATEST: lambda i, masked=masked, k=k: x.max(masked(i), axis=k),
        }[kind]
        shape = (N, N) if kind == PRODUCT else (N,)
        inputs = inputs_of(mask, kind, a, m, b)
        yield name, Workload.of(x.compute("Y", shape, fn), inputs=inputs)


def _element(mask: Mask, choose: Any, guards: bool, a: Any, m: Any, k: Any, i: Any) -> Any:
    conds = [test(i, k) for test in mask.tests.values()]
    conds += [m[i, k] > 0] if mask.on_data else []
    at = k if mask.shift is None else k + i - mask.shift

    def padded() -> Any:
        return x.padded(a, i, at)

    return choose(conds, (lambda: a[i, at]) if guards else padded, padded)


# --- arrays ------------------------------------------------------------------------------------


def _arrays(mask: Mask, kind: str) -> Iterator[Spelled]:
    if mask.shift is not None:
        return
    otherwise = -inf if kind == GREATEST else 0.0
    spelled: dict[str, Callable[[Any, list[Any]], Any]] = {
        "where": lambda a, ms: where(reduce(lambda p, q: p & q, ms), a, otherwise),
        "where ~": lambda a, ms: where(~reduce(lambda p, q: p & q, ms), otherwise, a),
        "nested where": lambda a, ms: reduce(lambda v, m: where(m, v, otherwise), ms, a),
        "number *": lambda a, ms: reduce(lambda p, q: p & q, ms).astype("f32") * a,
        "numbers *": lambda a, ms: reduce(lambda v, m: v * m.astype("f32"), ms, a),
    }
    for name, choose in spelled.items():
        if kind == GREATEST and "*" in name:
            continue
        a, m, b = (x.placeholder(name, (N, N)) for name in "AMB")
        masks: list[Any] = [
            x.compute(f"Q{n}", (N, N), lambda i, k, test=test: test(i, k))
            for n, test in enumerate(mask.tests.values())
        ]
        masks += [m > 0] if mask.on_data else []
        value = choose(a, masks)
        value = {PRODUCT: value @ b, SUM: value.sum(1), GREATEST: value.max(1)}[kind]
        inputs = inputs_of(mask, kind, a, m, b)
        yield name, Workload.of(value.named("Y"), inputs=inputs)


# --- documents ---------------------------------------------------------------------------------


def _documents(mask: Mask, kind: str) -> Iterator[Spelled]:
    otherwise = {"op": "const", "value": "-inf" if kind == GREATEST else 0.0, "dtype": "f32"}
    zero = {"op": "const", "value": 0.0, "dtype": "f32"}
    one = {"op": "const", "value": 1.0, "dtype": "f32"}
    conds: list[Any] = [{"op": "all", "conds": [text]} for text in mask.tests]
    data = {"op": "lt", "a": zero, "b": _load("M", "i", "k")}
    tests = [*conds, *([data] if mask.on_data else [])]
    element: Any = _load("A", "i", mask.column)
    padded = element
    if mask.shift is not None:
        element = padded = _select({"op": "all", "conds": [*mask.tests]}, element, zero)
    every = {"op": "all", "conds": [*mask.tests]}
    together = _pair("bit_and", every, data) if mask.on_data else every
    yes, no = ({"op": "const", "value": n, "dtype": "bool"} for n in (1, 0))
    bits = reduce(lambda p, q: _pair("bit_and", p, q), tests)
    spelled = {
        "all": _select(together, padded, otherwise),
        "bit_and": _select(bits, padded, otherwise),
        "bit_and backwards": _select(
            reduce(lambda p, q: _pair("bit_and", p, q), tests[::-1]), padded, otherwise
        ),
        "selects": reduce(lambda v, c: _select(c, v, otherwise), tests, padded),
        "select of tests": _select(
            reduce(lambda p, q: _select(q, p, no), tests, yes), padded, otherwise
        ),
        "xor": _select(_pair("bit_xor", bits, yes), otherwise, padded),
        "cast *": _pair("mul", {"op": "cast", "x": bits, "dtype": "f32"}, padded),
        "cast of a byte *": _pair(
            "mul",
            {"op": "cast", "x": {"op": "cast", "x": bits, "dtype": "u8"}, "dtype": "f32"},
            padded,
        ),
        "ones *": _pair("mul", padded, _select(bits, one, zero)),
        "casts *": reduce(
            lambda v, c: _pair("mul", v, {"op": "cast", "x": c, "dtype": "f32"}), tests, padded
        ),
    }
    for name, value in spelled.items():
        if kind == GREATEST and "*" in name:
            continue
        body = _pair("mul", value, _load("B", "k", "j")) if kind == PRODUCT else value
        used = ["A", *(["M"] if mask.on_data else []), *(["B"] if kind == PRODUCT else [])]
        axes = [["i", N], ["j", N]] if kind == PRODUCT else [["i", N]]
        document = {
            "version": 1,
            "name": "masked",
            "inputs": [{"name": t, "dtype": "f32", "shape": [N, N]} for t in used],
            "stages": [{
                "name": "Y", "dtype": "f32", "axes": axes, "body": body,
                "reducer": "max" if kind == GREATEST else "sum", "reduce_axes": [["k", N]],
            }],
            "outputs": ["Y"],
        }  # fmt: skip
        yield name, Workload.from_json(document)


def _load(tensor: str, *index: str) -> dict[str, Any]:
    return {"op": "load", "tensor": tensor, "index": [*index]}


def _pair(op: str, a: Any, b: Any) -> dict[str, Any]:
    return {"op": op, "a": a, "b": b}


def _select(cond: Any, on_true: Any, on_false: Any) -> dict[str, Any]:
    return {"op": "select", "cond": cond, "on_true": on_true, "on_false": on_false}
