"""Transposed convolutions at awkward sizes: every schedule computes them."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schedule_fuzz.check import (
    CACHES,
    Pair,
    check_pair,
    random_setting,
    this_machine,
)
from tests.support.schedules.transposed import ALL_SPELLINGS, random_convolution
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.operators import build
from tilewright.schedules.workload.workload import Workload

EPILOGUES = ("", "", "bias+relu", "add", "bias+gelu")


def image(rng: random.Random, **given: int) -> Workload:
    sizes = {
        "N": rng.choice((1, 1, 2, 3)), "H": rng.randint(1, 7), "W": rng.randint(1, 7),
        "CI": rng.choice((1, 2, 5, 16)), "CO": rng.choice((1, 1, 3, 8, 17, 33)),
        "KH": rng.randint(1, 6), "KW": rng.randint(1, 5),
        "stride_h": rng.randint(1, 4), "stride_w": rng.randint(1, 3),
        "pad_h": rng.randint(0, 3), "pad_w": rng.randint(0, 2),
    }  # fmt: skip
    return build("conv2d_transpose_nhwc", sizes | given, epilogue=rng.choice(EPILOGUES))


def single(rng: random.Random) -> Workload:
    """One image of one output channel: threads can divide the sums."""
    return image(rng, N=1, CI=rng.choice((4, 16, 33)), CO=1)


def line(rng: random.Random) -> Workload:
    """One axis, the tap with either sign, with channels that are summed up or not."""
    k, stride = rng.randint(1, 6), rng.randint(1, 5)
    at = f"(x {rng.choice('+-')} r + {rng.randint(0, 4)})"
    length, ci, co = rng.randint(1, 9), rng.choice((1, 4, 16)), rng.choice((1, 5, 16, 33))
    summed = rng.random() < 0.5
    channels = {True: ("c", (ci,), (ci, co)), False: ("o", (co,), (co,))}
    name, of_x, of_w = channels[summed]
    text = f"X[{at}//{stride}, {name}], 0) * W[r,{'c,' if summed else ''}o]"
    tensors = {"X": ("f32", (length, *of_x)), "W": ("f32", (k, *of_w))}
    text = f"Y[x,o] += where({at} % {stride} == 0, {text}"
    return from_notation(text, tensors, {"x": rng.randint(1, 20)})


def scatter(rng: random.Random) -> Workload:
    """An equation instead of a congruence, around the input or around the product."""
    x, k, step = rng.randint(1, 6), rng.randint(1, 6), rng.randint(1, 3)
    ci, co = rng.choice((1, 3, 9, 16)), rng.choice((1, 1, 5, 16, 33))
    equation = rng.choice(
        (
            f"{step}*y + r == x + {rng.randint(0, 3)}",
            f"{step}*y + {rng.randint(1, 3)}*r == x",
            f"x + {rng.randint(0, 3)} == {step}*y - r",
            f"{rng.randint(1, 3)}*x + r == {step}*y",
        )
    )
    value = rng.choice(("where({0}, X[y,c], 0) * W[r,c,o]", "where({0}, X[y,c] * W[r,c,o], 0)"))
    tensors = {"X": ("f32", (x, ci)), "W": ("f32", (k, ci, co))}
    return from_notation(f"Y[x,o] += {value.format(equation)}", tensors, {"x": rng.randint(1, 14)})


def spread(rng: random.Random) -> Workload:
    """Zeros put in by a stage of its own, and perhaps something done to the sums."""
    x, k, stride = rng.randint(1, 6), rng.randint(1, 6), rng.randint(1, 4)
    ci, co = rng.choice((1, 3, 9, 16)), rng.choice((1, 1, 5, 16, 33))
    at = f"(u + {rng.randint(0, 2)})"
    text = (
        f"U[u,c] = where({at} % {stride} == 0, X[{at}//{stride}, c], 0);"
        f" Y[x,o] += U[x + {rng.randint(1, 3)}*r - {rng.randint(0, 3)}, c] * W[r,c,o]"
    )
    tensors: dict[str, tuple[str, tuple[int, ...]]]
    tensors = {"X": ("f32", (x, ci)), "W": ("f32", (k, ci, co))}
    if rng.random() < 0.5:
        text += "; Z[x,o] = max(Y[x,o] + b[o], 0)"
        tensors["b"] = ("f32", (co,))
    return from_notation(text, tensors, {"x": rng.randint(1, 14), "u": rng.randint(1, 12)})


def spelled(rng: random.Random) -> Workload:
    """One to three axes in groups, in any spelling and layout."""
    return rng.choice([*ALL_SPELLINGS.values()])(random_convolution(rng))


@given(st.integers(0, 2**32 - 1), st.sampled_from([image, single, line, scatter, spread, spelled]))
@settings(max_examples=200)
def test_any_schedule_of_any_transposed_convolution_computes_it(
    seed: int, make: Callable[[random.Random], Workload]
) -> None:
    rng = random.Random(seed)
    try:
        workload = make(rng)
    except WorkloadError:  # no output left, or a read that is always padding
        return
    threads, bits = rng.choice((1, 2)), rng.choice((128, 256, 512))
    trace = random_setting(rng, workload, this_machine(threads, bits, rng.choice(CACHES)))
    check_pair(Pair("knobs", workload, trace, threads, bits))
