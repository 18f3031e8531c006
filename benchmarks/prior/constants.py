"""What each constant of the prior buys: the same judgement with one of them changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pkgutil import iter_modules

import tilewright.costmodel.counts

from .counting import numbers
from .judging import Judged, Known, judge, summary

MODULES = (
    "tilewright.schedules.hardware",
    "tilewright.schedules.sketches.vectors",
    *(
        f"tilewright.schedules.sketches.fused.{name}"
        for name in ("elementwise", "row_nests", "walks")
    ),
    "tilewright.costmodel.footprint",
    "tilewright.costmodel.prior",
    *(
        f"tilewright.costmodel.counts.{module.name}"
        for module in iter_modules(tilewright.costmodel.counts.__path__)
    ),
)
"""Those whose numbers the prior reads."""

LOST = 1.05
"""How many times as long as before what is proposed for a row must take, to be named."""


def table(found: Sequence[Known]) -> Iterator[str]:
    """One line a change: which, the judgement, and the rows that lose most."""
    usual = [judge(one) for one in found]
    yield f"{'as it is':44}{summary(usual)}"
    for module, name, value in _numbers():
        for changed in _others(value, name):
            with _set(module, name, changed):
                judged = [judge(one) for one in found]
            yield _line(f"{module.rpartition('.')[2]}.{name} = {changed:g}", usual, judged)


def _line(name: str, usual: Sequence[Judged], judged: Sequence[Judged]) -> str:
    losses = [(now.first / then.first, now.row) for now, then in zip(judged, usual, strict=True)]
    worst = [f"{row} {loss:.2f}" for loss, row in sorted(losses, reverse=True)[:3] if loss > LOST]
    return f"{name:44}{summary(judged)}  {', '.join(worst)}".rstrip()


def _others(value: float, name: str) -> tuple[float, float, float]:
    """A value that says nothing, half and double of it."""
    nothing = value * 1e6 if _divides(name) else 0.0
    return (type(value)(nothing), type(value)(value * 0.5), type(value)(value * 2.0))


def _divides(name: str) -> bool:
    """Whether nothing of it is said by a large value: rates and sizes are divided by."""
    ends = ("PORTS", "WIDTH", "NORM", "LATENCY", "PIPES", "_BYTES")
    return name.endswith(ends)


def _numbers() -> Iterator[tuple[str, str, float]]:
    chosen = {constant.name for constant in numbers() if constant.kind in ("chosen", "fact")}
    seen = {"MOST_THREADS"}  # a bound for loops
    for name in MODULES:
        for key, value in vars(import_module(name)).items():
            if key in chosen - seen and type(value) in (int, float):
                seen.add(key)
                yield name, key, value


@contextmanager
def _set(module: str, name: str, value: float) -> Iterator[None]:
    """Change a number in its module and in all that took it from there."""
    before = getattr(import_module(module), name)
    packages = ("costmodel", "tilewright.schedules.sketches")
    users = [m for n, m in list(sys.modules.items()) if n.startswith(packages) and name in vars(m)]
    for user in users:
        setattr(user, name, value)
    try:
        yield
    finally:
        for user in users:
            setattr(user, name, before)
