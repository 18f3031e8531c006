"""Transposed convolutions in three spellings against PyTorch.

    python -m benchmarks.transposed [--threads 2] [--trials 32] [--only TEXT] [--shared]
        [--out FILE.jsonl]

Each row is tuned from nothing in three spellings: the library's operator, the definition (a sum
with conditions of divisibility), and an ordinary convolution over an input with inserted zeros.
Then the three kernels and PyTorch's function (if PyTorch can be imported), eager and compiled, with
contiguous and with channels-last tensors, are called in turn, with the same values. The least times
are compared. Every result is compared with PyTorch's in f64. Run it on a quiet machine, with
`OMP_NUM_THREADS` set to `--threads` for PyTorch. With `--shared`, the spellings of a row are tuned
with one database, so that each begins with the best schedule of those before it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.operators import build
from tilewright.schedules.workload.workload import Workload

ROUNDS, ROUND_SECS = 30, 0.02
SPATIAL = {1: "l", 2: "hw", 3: "dhw"}


@dataclass(frozen=True, slots=True)
class Convolution:
    """A transposed convolution. Tuples have one entry for each spatial axis. `first` states whether
    channels are before the spatial axes (weights CI, CO/groups, taps) or after them (weights taps,
    CI, CO/groups)."""

    first: bool
    batch: int
    size: tuple[int, ...]
    ci: int
    co: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    out_pad: tuple[int, ...]
    groups: int = 1

    @classmethod
    def of(cls, rank: int, *, layout: str = "first", batch: int = 1, **sizes: Any) -> Convolution:
        """Return the convolution with `rank` spatial axes. A size of an axis may be one number for
        all of them."""
        given = {"pad": 0, "dilation": 1, "out_pad": 0, **sizes}
        axes = ("size", "kernel", "stride", "pad", "dilation", "out_pad")
        each: dict[str, Any] = {
            name: value if name not in axes or isinstance(value, tuple) else (value,) * rank
            for name, value in given.items()
        }
        return cls(layout == "first", batch, **each)

    @property
    def out(self) -> tuple[int, ...]:
        """The extents of the spatial axes of the output."""
        return tuple(
            (i - 1) * s - 2 * p + d * (k - 1) + more + 1
            for i, s, p, d, k, more in zip(
                self.size, self.stride, self.pad, self.dilation, self.kernel, self.out_pad,
                strict=True,
            )
        )  # fmt: skip

    def image(self, n: Any, spatial: Sequence[Any], c: Any) -> list[Any]:
        return [n, c, *spatial] if self.first else [n, *spatial, c]

    def weights(self, taps: Sequence[Any], i: Any, o: Any) -> list[Any]:
        return [i, o, *taps] if self.first else [*taps, i, o]

    @property
    def tensors(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        x = self.image(self.batch, self.size, self.ci)
        w = self.weights(self.kernel, self.ci, self.co // self.groups)
        return {"X": ("f32", tuple(x)), "W": ("f32", tuple(w))}

    @property
    def axes(self) -> str:
        return SPATIAL[len(self.size)]


def library(c: Convolution) -> Workload:
    """The operator of the library."""
    sizes = {"N": c.batch, "CI": c.ci, "CO": c.co, "groups": c.groups}
    one = len(c.axes) == 1
    per_axis = (
        ("stride", c.stride),
        ("pad", c.pad),
        ("dilation", c.dilation),
        ("out_pad", c.out_pad),
    )
    for at, axis in enumerate(c.axes):
        sizes |= {axis.upper(): c.size[at], "K" if one else f"K{axis.upper()}": c.kernel[at]}
        sizes |= {name if one else f"{name}_{axis}": values[at] for name, values in per_axis}
    layout = "".join(c.image("n", c.axes, "c"))
    return build(f"conv{len(c.axes)}d_transpose_{layout}", sizes)


def _channels(c: Convolution) -> tuple[str, str]:
    """The channel of the input and of the weights, for output channel `o` and channel `c` of a
    group."""
    if c.groups == 1:
        return "c", "o"
    ci, co = c.ci // c.groups, c.co // c.groups
    return f"(o//{co})*{ci} + c", f"o%{co}"


def _ranges(c: Convolution) -> dict[str, int]:
    outs = {f"{axis}o": extent for axis, extent in zip(c.axes, c.out, strict=True)}
    return {**outs, "n": c.batch, "o": c.co, "c": c.ci // c.groups}


def _joined(parts: Sequence[str]) -> str:
    return ", ".join(parts)


def _where_divisible(value: str, indices: Sequence[str], strides: Sequence[int]) -> str:
    for index, stride in zip(indices, strides, strict=True):
        value = f"where({index} % {stride} == 0, {value}, 0)" if stride > 1 else value
    return value


def definition(c: Convolution) -> Workload:
    """A sum over all taps, with a condition that the stride divides the position."""
    taps, outs = [f"{a}k" for a in c.axes], [f"{a}o" for a in c.axes]
    at = [
        f"({o} + {p} - {k}*{d})" for o, k, p, d in zip(outs, taps, c.pad, c.dilation, strict=True)
    ]
    ci, co = _channels(c)
    places = [f"{a}//{s}" for a, s in zip(at, c.stride, strict=True)]
    x = _where_divisible(f"X[{_joined(c.image('n', places, ci))}]", at, c.stride)
    w = f"W[{_joined(c.weights(taps, ci, co))}]"
    y = _joined(c.image("n", outs, "o"))
    ranges = {**_ranges(c), **dict(zip(taps, c.kernel, strict=True))}
    return from_notation(f"Y[{y}] += {x} * {w}", c.tensors, ranges)


def upsampled(c: Convolution, *, flipped: bool = True) -> Workload:
    """An ordinary convolution over the input with inserted zeros, with the kernel `flipped` or with
    windows that go through the input backwards."""
    taps, outs, ups = ([f"{a}{letter}" for a in c.axes] for letter in "kou")
    ci, co = _channels(c)
    places = [f"{u}//{s}" for u, s in zip(ups, c.stride, strict=True)]
    x = _where_divisible(f"X[{_joined(c.image('n', places, 'e'))}]", ups, c.stride)
    sides = zip(outs, taps, c.kernel, c.pad, c.dilation, strict=True)
    if flipped:
        at = [f"{o} + {p - d * (k - 1)} + {r}*{d}" for o, r, k, p, d in sides]
        of_weights = [f"{k - 1} - {r}" for k, r in zip(c.kernel, taps, strict=True)]
    else:
        at = [f"{o} + {p} - {r}*{d}" for o, r, _, p, d in sides]
        of_weights = taps
    sums = f"U[{_joined(c.image('n', at, ci))}] * W[{_joined(c.weights(of_weights, ci, co))}]"
    extents = [(i - 1) * s + 1 for i, s in zip(c.size, c.stride, strict=True)]
    ranges = {**_ranges(c), "e": c.ci, **dict(zip(taps, c.kernel, strict=True))}
    ranges |= dict(zip(ups, extents, strict=True))
    u, y = (_joined(c.image("n", *of)) for of in ((ups, "e"), (outs, "o")))
    return from_notation(f"U[{u}] = {x}; Y[{y}] += {sums}", c.tensors, ranges)


SPELLINGS: dict[str, Callable[[Convolution], Workload]] = {
    "library": library, "definition": definition, "upsampled": upsampled,
}  # fmt: skip

of = Convolution.of
ROWS = {
    "1d stride 2": of(1, size=1024, ci=64, co=64, kernel=4, stride=2, pad=1),
    "1d stride 5 dilation 2": of(1, size=512, ci=64, co=64, kernel=5, stride=5, dilation=2),
    "1d stride 5 dilation 5": of(1, size=512, ci=64, co=64, kernel=5, stride=5, dilation=5),
    "1d channels last, 4 groups, stride 4, dilation 2, padded":
        of(1, layout="last", size=512, ci=64, co=64, kernel=7, stride=4, dilation=2, groups=4,
           pad=3, out_pad=1),
    "inverse STFT": of(1, size=257, ci=513, co=1, kernel=1024, stride=256),
    "2d stride 1": of(2, size=32, ci=32, co=32, kernel=3, stride=1, pad=1),
    "2d stride 2": of(2, size=32, ci=64, co=64, kernel=4, stride=2, pad=1),
    "2d stride 2 out_pad 1": of(2, size=32, ci=64, co=32, kernel=3, stride=2, pad=1, out_pad=1),
    "2d asymmetric": of(2, size=(24, 40), ci=32, co=32, kernel=(3, 5), stride=(2, 3), pad=(1, 2)),
    "2d 4 groups, stride 2, dilation 2, padded":
        of(2, size=24, ci=32, co=64, kernel=3, stride=2, dilation=2, groups=4, pad=1),
    "2d 4 groups, stride 3, dilation 2, padded":
        of(2, size=24, ci=32, co=64, kernel=3, stride=3, dilation=2, groups=4, pad=1),
    "2d one channel per group, stride 2":
        of(2, size=48, ci=64, co=64, kernel=4, stride=2, groups=64, pad=1),
    "2d channels last, stride 5, dilation 3":
        of(2, layout="last", size=16, ci=32, co=32, kernel=5, stride=5, dilation=3, pad=2),
    "2d stride 5": of(2, size=16, ci=32, co=32, kernel=5, stride=5, pad=2),
    "3d stride 2 out_pad 1":
        of(3, size=8, ci=32, co=32, kernel=3, stride=2, pad=1, out_pad=1),
    "3d 4 groups, stride 2": of(3, size=8, ci=32, co=32, kernel=3, stride=2, groups=4, pad=1),
    "3d channels last, stride 5":
        of(3, layout="last", size=6, ci=16, co=16, kernel=5, stride=5, pad=1),
    "3d asymmetric, 2 groups, dilated":
        of(3, size=(6, 8, 10), ci=16, co=16, kernel=(3, 3, 5), stride=(1, 2, 3),
           dilation=(2, 1, 2), groups=2, pad=(1, 0, 2)),
}  # fmt: skip


def torch_calls(
    torch: Any, c: Convolution, x: Any, w: Any
) -> tuple[dict[str, Callable[[], object]], Any]:
    """Return PyTorch's calls by name, and the right result, computed in f64."""
    if not c.first:
        x, w = np.moveaxis(x, -1, 1).copy(), np.moveaxis(w, (-2, -1), (0, 1)).copy()
    rank = len(c.size)
    function = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    options: dict[str, Any] = {
        "stride": c.stride, "padding": c.pad, "output_padding": c.out_pad,
        "groups": c.groups, "dilation": c.dilation,
    }  # fmt: skip

    def call(a: Any, b: Any) -> Any:
        return function(a, b, **options)

    torch._dynamo.reset()
    compiled = torch.compile(call)
    formats = {"": torch.contiguous_format}
    if rank > 1:
        formats[" channels_last"] = torch.channels_last if rank == 2 else torch.channels_last_3d
    calls: dict[str, Callable[[], object]] = {}
    for name, order in formats.items():
        a, b = (torch.from_numpy(t).contiguous(memory_format=order) for t in (x, w))
        calls[f"eager{name}"] = lambda a=a, b=b: call(a, b)  # type: ignore[misc]
        calls[f"compiled{name}"] = lambda a=a, b=b: compiled(a, b)  # type: ignore[misc]
    right = call(*(torch.from_numpy(t.astype(np.float64)) for t in (x, w))).numpy()
    return calls, right if c.first else np.moveaxis(right, 1, -1)


def least(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the least seconds of each call. The calls take turns, so that changes of the clock
    frequency affect all of them alike."""
    repeats = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(int(ROUND_SECS / max(time.perf_counter() - start, 1e-7)), 1)
    found = dict.fromkeys(calls, math.inf)
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            found[name] = min(found[name], (time.perf_counter() - start) / repeats[name])
    return found


def measured(
    name: str, c: Convolution, threads: int, trials: int, torch: Any, database: str = ":memory:"
) -> dict[str, Any]:
    """Return one row of the table: seconds of each side, and the shares of the bound."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) for _, shape in c.tensors.values())
    calls: dict[str, Callable[[], object]] = {}
    outputs, fractions, tune_secs = {}, {}, {}
    for spelling, spelled in SPELLINGS.items():
        workload = spelled(c)
        began = time.perf_counter()
        budget = tw.Budget(trials=trials)
        report = tw.tune(workload, threads=threads, budget=budget, database=database)
        tune_secs[spelling] = time.perf_counter() - began
        assert report.best is not None, report.stopped_because
        fractions[spelling] = report.best.fraction_of_bound
        kernel = tw.build(workload, threads=threads, trace=report.best.trace)
        out = outputs[spelling] = np.empty(workload.output_tensors[0].shape, np.float32)
        calls[spelling] = lambda kernel=kernel, out=out: kernel(x, w, out=out)  # type: ignore[misc]
    right = None
    if torch is not None:
        theirs, right = torch_calls(torch, c, x, w)
        with torch.no_grad():
            seconds = least({**calls, **theirs})
    else:
        seconds = least(calls)
    right = outputs["library"] if right is None else right
    for out in outputs.values():
        np.testing.assert_allclose(out, right, rtol=1e-3, atol=1e-4 * float(np.abs(right).max()))
    return {
        "name": name, "threads": threads, "tune_secs": tune_secs, "fraction_of_bound": fractions,
        "seconds": seconds,
    }  # fmt: skip


def table(found: list[dict[str, Any]]) -> Iterator[str]:
    yield "| row | us | definition | upsampled | of the bound | best of PyTorch | tuned in, s |"
    yield "|---|---|---|---|---|---|---|"
    ratios = []
    for one in found:
        seconds = one["seconds"]
        own = seconds["library"]
        others = {n: secs for n, secs in seconds.items() if n not in SPELLINGS}
        best = min(others, key=lambda n: others[n], default=None)
        peer = ""
        if best is not None:
            slowest = max(seconds[n] for n in SPELLINGS)
            ratios.append(others[best] / slowest)
            peer = f"{others[best] / own:.2f}x ({best})"
        yield (
            f"| {one['name']} | {own * 1e6:.1f} | {seconds['definition'] / own:.2f} |"
            f" {seconds['upsampled'] / own:.2f} | {one['fraction_of_bound']['library']:.2f} |"
            f" {peer} | {max(one['tune_secs'].values()):.1f} |"
        )
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        yield (
            f"\nthe slowest spelling against the best of PyTorch: geometric mean {mean:.2f}x,"
            f" least {min(ratios):.2f}x"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--only", default="")
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    try:
        torch = importlib.import_module("torch")
        torch.set_num_threads(asked.threads)
    except ImportError:
        torch = None
    found = []
    for name, convolution in ROWS.items():
        if asked.only in name:
            with tempfile.TemporaryDirectory() as folder:
                database = f"sqlite:///{folder}/shared.sqlite" if asked.shared else ":memory:"
                row = measured(name, convolution, asked.threads, asked.trials, torch, database)
            found.append(row)
            print(json.dumps(found[-1]), flush=True)
    if asked.out is not None:
        asked.out.write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
