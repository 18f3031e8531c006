"""Random workloads in which a later stage makes a discrete difference of what a right kernel may
do otherwise: argmax, counts, quantising, gradients of pooling; and transposed convolutions by
definition."""

from __future__ import annotations

import random
from math import prod

from tests.support.schedules.transposed import ALL_SPELLINGS, random_convolution
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.workload.workload import Workload

_EXTENTS = (1, 2, 3, 4, 7, 9, 10, 16, 17, 33)
_FUNCTIONS = (
    "{x}", "{x}", "abs({x})", "log({x})", "log({x} + 1.0)", "log(abs({x}))", "sqrt({x})",
    "sqrt(abs({x}))", "rsqrt({x} + 0.5)", "rsqrt(abs({x}))", "exp({x})", "exp(-{x})", "1.0 / {x}",
    "{x} / (abs({x}) + 1.0)", "tanh({x})", "sigmoid({x})", "{x} * {x}", "max({x}, 0.0)",
    "min(max({x}, -1.0), 1.0)", "{x} * sigmoid({x})", "where({x} > 0.0, {x}, 0.1 * {x})",
    "log(exp({x}) + 1.0)", "{x} - 0.25", "sin({x})", "max({x}, Z[j])", "{x} * Z[j]", "{x} / Z[j]",
    "{x} + Z[j]", "log1p({x})", "log1p(abs({x}))", "expm1({x})", "erf({x})", "cos({x})",
    "tan({x})", "asin({x})", "acos(0.5 * {x})", "atan({x})", "sinh({x})", "cosh({x})", "asinh({x})",
    "acosh(abs({x}) + 1.0)", "atanh(0.5 * {x})", "exp2({x})", "log2(abs({x}))", "log10({x} + 2.0)",
    "cbrt({x})", "softplus({x})", "sign({x})", "pow(abs({x}), 1.5)", "abs({x}) ** Z[j]",
    "{x} ** 3", "atan2({x}, Z[j])", "atan2({x} - 0.5, -1.0)",
)  # fmt: skip
_ROW = (
    "m[i] max= {x}", "m[i] max= {x}", "m[i] min= {x}", "m[i] += {x}", "m[i] += {x} * {x}",
    "m[i] += {x} * Z[j]", "m[i] *= {x}", "m[i] max= abs({x})",
)  # fmt: skip
_DISCRETE = (
    "a[i] min= where({x} == m[i], j, 100000)",
    "a[i] max= where({x} >= m[i], j, -1)",
    "a[i] += where({x} == m[i], 1, 0)",
    "a[i] += where({x} < m[i] * 0.5, 1, 0)",
    "a[i] += i64(floor({x}))",
    "a[i] += i64(ceil({x}))",
    "a[i] += i32(round({x} * 8.0))",
    "a[i] += i32(trunc({x} * 8.0))",
    "D[i,j] = where({x} == m[i], G[i], 0.0)",
    "D[i,j] = where({x} == m[i], G[i], {x})",
    "D[i] += where({x} == m[i], X[i,j], 0.0)",
    "D[i] max= where({x} < m[i], {x}, -1e30)",
    "q[i,j] = i8({x} / m[i] * 127.0)",
    "q[i,j] = u8(floor({x} * (255.0 / m[i]) + 0.5))",
    "q[i,j] = i32({x} - m[i])",
    "q[i,j] = where({x} != {x}, 1, 0)",
    "q[i,j] = bool({x} - m[i])",
    "D[i,j] = exp({x} - m[i]); s[i] += D[i,j]; p[i,j] = D[i,j] / s[i]; c[i] += where(p[i,j] > 0.1, 1, 0)",  # noqa: E501
    "D[i,j] = floor({x} / m[i])",
    "D[i,j] = {x} * rsqrt(m[i] + 0.00001); q[i,j] = i32(D[i,j] * 16.0)",
    "D[i,j] = max({x} - m[i], 0.0); q[i] += where(D[i,j] > 0.0, 1, 0)",
)  # fmt: skip


def random_discrete(rng: random.Random) -> Workload:
    """A valid workload of one of the kinds."""
    while True:
        try:
            if rng.random() < 0.3:
                return rng.choice(
                    (transposed_convolution, spelled_convolution, padded_convolution)
                )(rng)
            return rng.choice((_rows, _rows, _pool_gradient))(rng)
        except WorkloadError:
            continue


def _rows(rng: random.Random) -> Workload:
    """A function of the elements of rows, something of whole rows, and what is decided by both."""
    dtype = rng.choice(("f32", "f32", "f32", "f64", "f16", "bf16"))
    rows, columns = rng.choice(_EXTENTS), rng.choice(_EXTENTS)
    wide = "f32" if dtype in ("f16", "bf16") else dtype
    x = "X[i,j]" if wide == dtype else f"{wide}(X[i,j])"
    for _ in range(rng.choice((1, 1, 1, 2))):
        x = rng.choice(_FUNCTIONS).format(x=f"({x})")
    head = f"l[i,j] = {x}; " if rng.random() < 0.7 else ""
    read = "l[i,j]" if head else f"({x})"
    row = rng.choice(_ROW).format(x=read)
    text = f"{head}{row}; {rng.choice(_DISCRETE).format(x=read)}"
    if wide != dtype:
        text = text.replace(f"{wide}(X[i,j])", "\0").replace("X[i,j]", f"{wide}(X[i,j])")
        text = text.replace("\0", f"{wide}(X[i,j])")
    tensors = {"X": (dtype, (rows, columns)), "G": (wide, (rows,)), "Z": (wide, (columns,))}
    used = {name: spec for name, spec in tensors.items() if f"{name}[" in text}
    return from_notation(text, used)


def _pool_gradient(rng: random.Random) -> Workload:
    """The gradient of max pooling over windows, strided and padded, or the place of the maximum."""
    length, taps = rng.choice(_EXTENTS[4:]), rng.choice((2, 3, 5))
    step, pad = rng.choice((1, 2, 3)), rng.choice((0, 0, 1))
    outputs = max(1, (length + 2 * pad - taps) // step + 1)
    at = f"X[c,{step}*i+r-{pad}]"
    value = rng.choice((at, f"sqrt(abs({at}))", f"exp({at})", f"log({at} + 1.5)"))
    found = rng.choice(
        (
            f"D[c,i,r] = where({value} == M[c,i], G[c,i], 0.0)",
            f"D[c,i] min= where({value} == M[c,i], {step}*i+r-{pad}, 100000)",
            f"D[c,i] += where({value} == M[c,i], 1, 0)",
        )
    )
    channels = rng.choice((1, 3, 8))
    tensors = {"X": ("f32", (channels, length)), "G": ("f32", (channels, outputs))}
    text = f"M[c,i] max= {value}; {found}"
    used = {name: spec for name, spec in tensors.items() if f"{name}[" in text}
    return from_notation(text, used, {"c": channels, "i": outputs, "r": taps})


def spelled_convolution(rng: random.Random) -> Workload:
    """The operator of the library, its definition, or sums over an input with inserted zeros."""
    return rng.choice([*ALL_SPELLINGS.values()])(random_convolution(rng))


def padded_convolution(rng: random.Random) -> Workload:
    """Sums over a copy with zeros around a tensor, or around and between its elements."""
    size, taps, pad, step = (rng.randint(1, most) for most in (9, 4, 3, 3))
    ci, co = rng.choice((1, 3)), rng.choice((1, 5, 17))
    text = f"X[(u-{pad})//{step},c]"
    if step > 1:
        text = f"where((u-{pad}) % {step} == 0, {text}, 0)"
    text = f"U[u,c] = {text}; Y[y,o] += U[y+r,c] * W[r,c,o]"
    if rng.random() < 0.3:
        text += "; Z[y,o] = max(Y[y,o], 0.0) + U[y,0]"
    tensors = {"X": ("f32", (size, ci)), "W": ("f32", (taps, ci, co))}
    extent = size * step + 2 * pad
    return from_notation(text, tensors, {"u": extent, "y": max(extent - taps + 1, 1)})


def transposed_convolution(rng: random.Random) -> Workload:
    """By definition: `O[y] += W[y + pad - step*i] * I[i]`, of one to three dimensions, dilated, in
    groups, with what follows now and then."""
    rank = rng.choice((1, 1, 2, 2, 3))
    most = (17, 7, 4)[rank - 1]
    groups = rng.choice((0, 0, 1, 2))
    ci, co = rng.choice((0, 1, 3)), rng.choice((0, 2, 5, 48 if rank == 1 else 5))
    ranges: dict[str, int] = {}
    filters, images, out = list[str](), list[str](), list[str]()
    sizes: dict[str, list[int]] = {"W": [], "I": []}
    for d in range(rank):
        y, i, r = (f"{name}{d}" for name in "yir")
        step, pad, dilation = rng.choice((1, 2, 2, 3)), rng.choice((0, 1, 2)), rng.choice((1, 1, 2))
        taps, length = rng.choice((1, 2, 3, 4, 5)), rng.randint(1, most)
        reach = (length - 1) * step + (taps - 1) * dilation + 1 - 2 * pad
        ranges[y], ranges[i] = max(1, min(reach + rng.choice((0, 0, 1, -1)), 40)), length
        filters.append(
            f"{y}+{pad}-{step}*{i}" if dilation == 1 else f"({y}+{pad}-{step}*{i}-{r})//{dilation}"
        )
        if dilation > 1:  # a tap r * dilation, where that divides
            ranges[r] = taps
            filters[-1] = r
            images.append(f"({y}+{pad}-{dilation}*{r})//{step}")
            ranges.pop(i)
        else:
            images.append(i)
        sizes["W"].append(taps)
        sizes["I"].append(length)
        out.append(y)
    conds = [
        f"({out[d]}+{_offset(images[d])}) % {images[d].rsplit('//', 1)[1]} == 0"
        for d in range(rank)
        if "//" in images[d]
    ]
    w, x, o = [*filters], [*images], [*out]
    for name, extent, places in (("g", groups, (w, x, o)), ("c", ci, (w, x)), ("f", co, (w, o))):
        if extent:
            ranges[name] = extent
            for place in places:
                place.append(name)
            for size, place in (("W", w), ("I", x)):
                if place[-1] == name:
                    sizes[size].append(extent)
    product = f"W[{','.join(w)}] * I[{','.join(x)}]"
    if conds:
        product = f"where({' and '.join(conds)}, {product}, 0)"
    text = f"O[{','.join(o)}] += {product}"
    if rng.random() < 0.2:
        text += f"; R[{','.join(o)}] = max(O[{','.join(o)}], 0.0)"
    dtype = rng.choice(("f32", "f32", "f64"))
    tensors = {name: (dtype, tuple(size)) for name, size in sizes.items()}
    found = from_notation(text, tensors, ranges)
    if prod(a.extent for s in found.stages for a in s.all_axes) > 1 << 16:
        raise WorkloadError("too large", code="too_large")
    return found


def _offset(image: str) -> str:
    """`p - d*r` of `(y+p-d*r)//s`."""
    return image[1 : image.index(")")].split("+", 1)[1]
