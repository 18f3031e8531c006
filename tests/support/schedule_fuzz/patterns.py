"""Programs of two or three stages of the structures that rewrites look for, written as nobody would
for their sake: stored zeros that are read at data, formulas in which an axis chooses only, copies
that are read with another zero, several searches of one tensor, conditions that compare axes which
could be merged, reductions of which a comparison selects a prefix or one term, or the output of
each term."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping

from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.workload.workload import Workload

_SIZES = (2, 5, 9, 17, 33)


def random_pattern(rng: random.Random) -> Workload:
    """A program of any of these structures."""
    return rng.choice(_PATTERNS)(rng)


def _condition(rng: random.Random, a: str, b: str) -> str:
    """A condition that holds at a part of the points of two axes."""
    off = rng.randint(-2, 3)
    return rng.choice(
        (f"{b} <= {a} + {off}", f"{b} >= {a} - {off}", f"{a} + {b} >= {off + 3}",
         f"({a} + {b}) % 2 == 0", f"2*{b} <= {a} + {off}", f"{b} == {a}", f"{b} >= 1 && {b} <= {a}")
    )  # fmt: skip


def _stored_zeros(rng: random.Random) -> Workload:
    """A product with a tensor that stores a constant, or a product with one, unless a condition
    holds, read at its axes or at data, once or twice."""
    n, m, size = rng.choice(_SIZES), rng.choice(_SIZES), rng.choice(_SIZES)
    other = rng.choice(("0.0", "0.0", "0.0", "1.0"))
    rows = rng.choice(("i", "i", f"{n - 1}-i", "R[i]", "clamp(R[i])", "wrap(R[i])"))
    columns = rng.choice(("k", "k", f"{m - 1}-k", "wrap(Q[k])"))
    read, cond = f"P[{rows},{columns}]", _condition(rng, "i", "k")
    first = read if rng.random() < 0.6 else f"where({_condition(rng, 'i', 'k')}, {read}, 0.0)"
    terms = f"{first} * B[k,j]" + (f" + {read} * B[k,j]" if rng.random() < 0.3 else "")
    factor = rng.choice(("", "", " * A[i,k]"))
    text = f"P[i,k] = where({cond}, exp(A[i,k]), {other}){factor}; Y[i,j] += {terms}"
    tensors = {"A": ("f32", (n, m)), "B": ("f32", (m, size))}
    indices = {"R": ("i32", (n,)), "Q": ("i32", (m,))}
    return _made(text, {**tensors, **indices}, {"i": n, "k": m, "j": size})


def _masked_results(rng: random.Random) -> Workload:
    """A product of which readers use a part, at its own positions, mirrored, or at data."""
    n, m, depth = rng.choice(_SIZES), rng.choice(_SIZES), rng.choice((1, 3, 9))
    conds = [_condition(rng, "i", "j") for _ in range(rng.choice((1, 1, 2)))]
    at = [rng.choice(("i,j", "i,j", f"{n - 1}-i,j", "wrap(R[i]),j")) for _ in range(2)]
    own = f"where({rng.choice(conds)}, A[i,k] * B[k,j], 0.0)"
    value = own if rng.random() < 0.5 else "A[i,k] * B[k,j]"
    other = rng.choice(("0.0", "2.0"))
    text = f"S[i,j] += {value}; Y[i,j] = where({conds[0]}, S[{at[0]}], {other})"
    if rng.random() < 0.5:
        text += f"; M[i] max= where({conds[-1]}, S[{at[1]}], -inf)"
    tensors = {"A": ("f32", (n, depth)), "B": ("f32", (depth, m)), "R": ("i32", (n,))}
    return _made(text, tensors, {"i": n, "j": m, "k": depth})


def _test(rng: random.Random, depth: int) -> str:
    """A test of indices, of data, or of both, joined and negated in any way."""
    if depth == 0 or rng.random() < 0.2:
        of_indices = [_condition(rng, "i", "k")] * 3
        return f"({rng.choice([*of_indices, 'D[i,k] > 0', 'D[i,k] > 0', 'D[k,0] < 1'])})"
    a, b = _test(rng, depth - 1), _test(rng, depth - 1)
    kinds = (f"{a} && {b}", f"{a} & {b}", f"{a} & {b}", f"{a} || {b}", f"{a} | {b}", f"{a} ^ {b}",
             f"!{a}", f"~{a}", f"!(!{a} | !{b})", f"where({a}, {b}, {a})", f"i32({a}) != 0",
             f"u8({a} & {b}) != 0")  # fmt: skip
    return f"({rng.choice(kinds)})"


def masks(rng: random.Random) -> Workload:
    """A reduction of elements that a test of any structure chooses, in any of the ways to write
    it: alternatives of either order, factors, and stages that are the test."""
    n = rng.choice((5, 8, 12))
    reduce_by = rng.choice(("+", "+", "+", "max", "*"))
    zero = {"+": rng.choice(("0.0", "0.0", "-0.0", "1.0")), "max": "-inf", "*": "1.0"}[reduce_by]
    text, value = "", "A[i,k]"
    for number in range(rng.choice((1, 1, 2))):
        test = _test(rng, rng.choice((1, 2, 3)))
        if rng.random() < 0.25:
            kind = rng.choice(("{}", "f32({})"))
            text += f"Q{number}[i,k] = {kind.format(test)}; "
            test = f"Q{number}[i,k]" + (" > 0.0" if "f32" in kind else "")
        value = rng.choice((
            f"where({test}, {value}, {zero})", f"where({test}, {zero}, {value})",
            f"f32({test}) * {value}", f"{value} * ({test})", f"where({test}, 1.0, 0.0) * {value}",
            f"exp(where({test}, {value}, 0.0))",
        ))  # fmt: skip
    product = reduce_by == "+" and rng.random() < 0.6
    sign = "max" if reduce_by == "max" else reduce_by
    text += f"Y[i,j] {sign}= {value}" + (" * B[k,j]" if product else " + B[k,j]")
    tensors = {"A": ("f32", (n, n)), "B": ("f32", (n, 9)), "D": ("f32", (n, n))}
    return _made(text, tensors, {"i": n, "k": n, "j": 9})


def _formulas(rng: random.Random) -> Workload:
    """A formula with a function that two stages share, in which an axis may only choose."""
    n, m = rng.choice(_SIZES), rng.choice(_SIZES)
    inner = rng.choice(("A[i]", "A[i]", "B[i,j]", "C[j]", "A[wrap(R[i])]"))
    formula = f"exp(where({_condition(rng, 'i', 'j')}, {inner}, {rng.choice(('0.0', 'C[j]'))}))"
    first = rng.choice((f"S[i] += {formula}", f"S[i] max= {formula} * B[i,j]",
                        f"S[i,j] = {formula} * B[i,j]"))  # fmt: skip
    second = f"Y[i,j] = {formula} + {'S[i,j]' if 'S[i,j]' in first else 'S[i]'}"
    tensors = {"A": ("f32", (n,)), "B": ("f32", (n, m)), "C": ("f32", (m,)), "R": ("i32", (n,))}
    return _made(f"{first}; {second}", tensors, {"i": n, "j": m})


def chosen_formulas(rng: random.Random) -> Workload:
    """Formulas between which conditions on axes choose, in turn, inside each other or in a sum."""
    n, m = rng.choice(_SIZES[:3]), rng.choice((17, 33, 130, 520))
    conds = [f"j < {rng.randint(1, m)}", f"j < {rng.randint(1, m)}", f"i < {rng.randint(1, n)}",
             f"j >= {rng.randint(0, m)}", f"i + j < {rng.randint(1, n + m)}", "j % 2 == 0",
             f"j//8 >= {rng.randint(0, 3)}", "i <= j"]  # fmt: skip
    formulas = ["A[i,j]", "exp(A[i,j])", "A[i,j] * B[i,j]", "tanh(B[i,j])", "B[i,j] + 1.0",
                "sigmoid(A[i,j]) * exp(B[i,j])", "2.0"]  # fmt: skip
    is_long = rng.random() < 0.4
    if is_long:  # several conditions cut rows in all terms of a sum of functions
        m = rng.choice((130, 520))
        conds = [f"j < {rng.randint(1, m)}" for _ in range(6)]
        formulas = [text for text in formulas if "(" in text]
    value = rng.choice(formulas)
    for cond in rng.sample(conds, rng.randint(3 if is_long else 1, 5)):
        pair = [rng.choice(formulas), value]
        rng.shuffle(pair)
        if not is_long and rng.random() < 0.5:
            value = f"where({cond}, {', '.join(pair)})"
        else:
            value = f"{value} + where({cond}, {', '.join(rng.sample(formulas, 2))})"
    return _made(f"Y[i,j] = {value}", dict.fromkeys("AB", ("f32", (n, m))), {"i": n, "j": m})


def _copies(rng: random.Random) -> Workload:
    """Sums that read a copy with zeros around or between its elements, also under conditions of
    their own with a zero of either sign, divided by it, or through a function."""
    size, taps = rng.choice(_SIZES), rng.randint(1, 4)
    pad, step = rng.randint(0, 2), rng.randint(1, 3)
    extent = size * step + 2 * pad
    copied = f"X[(u-{pad})//{step}]"
    inside = f"u >= {pad} && u < {extent - pad}"
    inside += f" && (u-{pad}) % {step} == 0" if step > 1 else ""
    outputs = max((extent - taps) // 2, 1)
    place = rng.choice(("y+r", "2*y+r", f"{extent - 1}-y-r", "(y+r)//2"))
    read = f"U[{place}]"
    if rng.random() < 0.5:
        read = f"where(y+r >= {rng.randint(0, 3)}, {read}, {rng.choice(('0.0', '-0.0', '1.0'))})"
    term = rng.choice((f"{read} * W[r]", f"W[r] / {read}", f"max({read}, W[r])", f"{read} + W[r]"))
    text = f"U[u] = where({inside}, {copied}, 0.0); Y[y] += {term}"
    tensors = {"X": ("f32", (size,)), "W": ("f32", (taps,))}
    return _made(text, tensors, {"u": extent, "y": outputs, "r": taps})


def _positions(rng: random.Random) -> Workload:
    """Integers that are stored under a condition, or copied with zeros, and read as an index."""
    n, size, taps = rng.choice(_SIZES), rng.choice(_SIZES), rng.randint(1, 3)
    kept = rng.choice(("A[u]", "A[u]", "A[u] + 1", "u", "A[u-1]"))
    inside = rng.choice(("u >= 1", f"u >= 1 && u < {n}", "u % 2 == 0 && u >= 1"))
    place = rng.choice(("y", "y+r", f"{n - 1}-y", "(y+r)//2", "wrap(R[y])"))
    read = f"{rng.choice(('clamp', 'wrap', 'zero'))}(P[{place}])"
    if rng.random() < 0.4:
        read = f"{read[:-1]} + r)"
    value = f"Z[{read}]" if rng.random() < 0.6 else f"where(y >= r, Z[{read}], 0.0)"
    other = rng.choice(("0", "0", "2"))
    text = f"P[u] = where({inside}, {kept}, {other}); Y[y] += {value} * W[r]"
    tensors = {"A": ("i32", (n,)), "Z": ("f32", (size,)), "W": ("f32", (taps,)), "R": ("i32", (n,))}
    return _made(text, tensors, {"u": n, "y": max(n - taps + 1, 1), "r": taps})


def _spaced(rng: random.Random) -> Workload:
    """A sum over terms that a congruence chooses, of which whole outputs may have none."""
    size, taps = rng.choice(_SIZES), rng.randint(1, 5)
    step, modulus = rng.choice((1, 2, 3, 4)), rng.choice((2, 3, 4, 6))
    offset, own = rng.randint(0, 3), rng.choice(("y", "y", "3*y", "y + 2*x"))
    at = f"{own} + {offset} - {step}*r"
    text = f"O[y,x] += where(({at}) % {modulus} == 0, X[({at})//{modulus}], 0.0) * W[r]"
    tensors = {"X": ("f32", (size,)), "W": ("f32", (taps,))}
    return _made(text, tensors, {"y": rng.choice(_SIZES), "x": rng.choice((1, 3)), "r": taps})


def _searches(rng: random.Random) -> Workload:
    """Positions of extremes of two parts of one tensor, of nearly the same length."""
    rows, length = rng.choice((1, 3, 9)), rng.choice((6, 9, 17, 33))
    dtype = rng.choice(("f32", "f32", "i32", "i8", "u8", "f64"))
    along = rng.choice((True, False))
    lengths = [length - rng.choice((0, 0, 1, 2)) for _ in range(2)]
    parts = []
    for name, k, extent in zip("PQ", "kl", lengths, strict=True):
        place = rng.choice((k, k, f"{k}+{length - extent}", f"{extent - 1}-{k}"))
        read = f"X[i,{place}]" if along else f"X[{place},i]"
        function, words = rng.choice(("argmax", "argmax", "argmin")), rng.choice(("", ", last"))
        parts.append(f"{name}[i] = {function}({read}, {k}{words})")
    shape = (rows, length) if along else (length, rows)
    ranges = {"i": rows, "k": lengths[0], "l": lengths[1]}
    return _made("; ".join(parts), {"X": (dtype, shape)}, ranges)


def _scans(rng: random.Random) -> Workload:
    """A scan along any axis of three, and a stage after it that reads it in its own order."""
    shape = [rng.choice((1, 2, 3, 7)) for _ in "abc"]
    along, words = rng.choice("abc"), rng.choice(("", ", reverse", ", exclusive"))
    function = rng.choice(("cumsum", "cummax", "cummin"))
    text = f"S[a,b,c] = {function}(X[a,b,c], {along}{words})"
    text += rng.choice(("", "; Y[a,b,c] = S[a,b,c] * 2", "; Y[a,c] += S[a,b,c]"))
    return _made(text, {"X": (rng.choice(("f32", "i32", "u8")), tuple(shape))}, {})


def _pairs(rng: random.Random) -> Workload:
    """Elementwise or summed values of one or two tensors of two axes that lie together in pairs,
    under conditions that compare axes of a pair or of both."""
    n, m = rng.choice((1, 2, 3, 5)), rng.choice((2, 3, 5, 9))
    reads = "X[i,j]", rng.choice(("X[k,l]", "X[k,l]", "X[k,l]", "Z[k,l]"))
    places = rng.choices(("i", "j", "k", "l", f"{m}*i + j", f"{m}*k + l"), k=4)
    if rng.random() < 0.5:
        places[:2] = rng.choice("ij"), rng.choice("kl")
    conds = [
        f"{a} {rng.choice(('<=', '>', '=='))} {b}"
        for a, b in zip(places[::2], places[1::2], strict=True)
    ]
    cond = conds[0] if rng.random() < 0.6 else f"{conds[0]} {rng.choice(('&&', '||'))} {conds[1]}"
    value = f"where({cond}, {reads[0]} * {reads[1]}, {rng.choice(('0.0', '0.0', '2.0'))})"
    axes, sign = rng.choice(
        (("i,j,k,l", "="), ("i,j,k,l", "="), ("k,l,i,j", "="), ("i,j", "+="), ("k,l", "max="))
    )
    sizes = {"i": n, "j": m, "k": n, "l": m}
    return _made(f"Y[{axes}] {sign} {value}", dict.fromkeys("XZ", ("f32", (n, m))), sizes)


def selected_prefixes(rng: random.Random) -> Workload:
    """A reduction whose terms a comparison of an output axis with a reduction axis selects, in one
    of several spellings, beside other axes and conditions."""
    n, m, most = rng.choice(_SIZES), rng.choice(_SIZES), rng.choice((1, 3))
    off, step = rng.randint(-4, 6), rng.choice(("", "", "", "2*", "3*"))
    cond = rng.choice(
        (f"k <= {step}j + {off}", f"k >= {step}j - {off}", f"{step}k < j + {off}",
         f"{step}k + j > {off + n - 1}", f"k + {step}j <= {off + n}", "k//3 <= j//3",
         f"(k + {abs(off)})//2 > (j + 1)//3", f"k <= i + j - {off}", f"k >= j - {off} && k <= j")
    )  # fmt: skip
    cond += rng.choice(("", "", "", " && r <= i", " && k >= 1", f" && k + r <= {n}"))
    read = rng.choice(("A[i,k]", "A[i,k]", "A[k,i]", "B[k]", "A[i,k]*B[k]", "A[i,k]*C[r,k]"))
    sign, other = rng.choice((("+=", "0.0"), ("+=", "0.0"), ("max=", "-inf"), ("*=", "1.0")))
    text = f"Y[i,j] {sign} where({cond}, {read}, {other})"
    if sign == "+=" and rng.random() < 0.5:
        masks = f"f32({cond}) * {read}", f"where({cond}, 1.0, 0.0) * {read}"
        text = f"Y[i,j] += {rng.choice(masks)}"
        if rng.random() < 0.4 and "i" not in cond and "r" not in cond:
            text = f"M[k,j] = where({cond}, 1.0, 0.0); Y[i,j] += {read} * M[k,j]"
    shape = (n, most) if "A[k,i]" in read else (most, n)
    tensors = {"A": ("f32", shape), "B": ("f32", (n,)), "C": ("f32", (2, n))}
    return _made(text, tensors, {"i": most, "j": m, "k": n, "r": 2})


def selected_terms(rng: random.Random) -> Workload:
    """A reduction of which a comparison with data selects one term at most, in one of several
    spellings, beside other axes and conditions."""
    n, m, size = rng.choice(_SIZES), rng.choice((1, 3, 9)), rng.choice(_SIZES)
    whole = rng.choice(("i32", "i32", "i64", "u8", "i8"))
    place = rng.choice(("v", "v", "v", "v + 1", "v + i - 2"))
    data = rng.choice(("I[i]", "I[i]", "J[i,r]", "I[i] + 1"))
    test = rng.choice((f"{place} == {data}", f"{data} == {place}"))
    read = rng.choice(("T[v,d]", "T[v,d]", "T[v,d] * W[r]", "U[2*v + d]", "T[v,d] + i32(v)"))
    if place == "v + i - 2" and whole in ("u8", "i8"):
        place = "v"
    term = f"where({test}, {read}, 0)"
    if rng.random() < 0.4:
        term = rng.choice((f"where({data} != {place}, 0, {read})", f"i32({test}) * ({read})"))
    text = f"Y[i,d] {rng.choice(('+=', '+=', '+=', 'max='))} {term}"
    if rng.random() < 0.3:
        text = "H[i,v] = where(I[i] == v, 1, 0); Y[i,d] += H[i,v] * T[v,d]"
    tensors = {
        "I": (whole, (m,)), "J": (whole, (m, 3)), "T": ("i32", (n, size)), "W": ("i32", (3,)),
        "U": ("i32", (2 * n + size,)),
    }  # fmt: skip
    return _made(text, tensors, {"i": m, "d": size, "v": n, "r": 3})


def scattered_terms(rng: random.Random) -> Workload:
    """A reduction in which a comparison with data selects the output of each term, in one of
    several spellings, with other axes before and after the selected one and other reductions."""
    n, m, size = rng.choice(_SIZES), rng.choice((1, 2, 3, 9)), rng.choice((1, 3, 8, 17))
    whole = rng.choice(("i32", "i32", "i64", "u8", "i8"))
    axes, terms = rng.choice(
        (("v", "X[n]"), ("v", "1"), ("v,d", "X2[n,d]"), ("v,d", "X2[n,d] * W[k]"),
         ("b,v", "X3[b,n]"), ("b,v,d", "X3[b,n] * W2[b,d]"), ("d,v", "X2[n,d]"),
         ("v,w", "X[n]"), ("v,d", "X2[n,d] + i32(v)"), ("v", "X4[n,k]"))
    )  # fmt: skip
    data = rng.choice(("I[n]", "I[n]", "I[n]", "I[n] + 1", "I[n] - 2"))
    if "b" in axes and rng.random() < 0.5:
        data = "J[b,n]"
    if "d" in axes and rng.random() < 0.2:
        data = "K[n,d]"
    test = rng.choice((f"{data} == v", f"v == {data}", f"v + 1 == {data}"))
    test += " && L[n] == w" * ("w" in axes) + rng.choice(("", "", "", " && n >= 1"))
    sign, other = rng.choice(
        (("+=", "0"), ("+=", "0"), ("max=", "-2147483648"), ("min=", "2147483647"), ("*=", "1"))
    )
    text, kind = f"Y[{axes}] {sign} where({test}, {terms}, {other})", "i32"
    if sign == "+=" and rng.random() < 0.6 and "&&" not in test:
        kind = rng.choice(("i32", "f32"))
        terms = terms.replace("i32(", f"{kind}(")
        text = f"Y[{axes}] += {kind}({test}) * ({terms})"
        if data.startswith("I") and rng.random() < 0.5:
            one = "1.0" if kind == "f32" else "1"
            text = f"H[n,v] = where({test}, {one}, 0); Y[{axes}] += H[n,v] * ({terms})"
    tensors = {
        "I": (whole, (n,)), "J": (whole, (2, n)), "K": (whole, (n, size)), "L": (whole, (n,)),
        "X": (kind, (n,)), "X2": (kind, (n, size)), "X3": (kind, (2, n)),
        "X4": (kind, (n, 3)), "W": (kind, (3,)), "W2": (kind, (2, size)),
    }  # fmt: skip
    return _made(text, tensors, {"n": n, "v": m, "d": size, "b": 2, "w": 3, "k": 3})


def _made(
    text: str, tensors: Mapping[str, tuple[str, tuple[int, ...]]], ranges: dict[str, int]
) -> Workload:
    used = {name: spec for name, spec in tensors.items() if f"{name}[" in text}
    given = {name: size for name, size in ranges.items() if re.search(rf"\b{name}\b", text)}
    return from_notation(text, used, given)


_PATTERNS: tuple[Callable[[random.Random], Workload], ...] = (
    _stored_zeros, _masked_results, _formulas, chosen_formulas, _copies, _positions, _spaced,
    _searches, _scans, _pairs, selected_prefixes, selected_terms, scattered_terms, masks,
)  # fmt: skip
