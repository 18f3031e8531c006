"""What each constant of the prior buys: the same judgement with one of them changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from importlib import import_module

from costmodel.prior import DEFAULT_CONSTANTS, PriorConstants

from .judging import Known, judge, summary

MODULES = ("tile", "tile_loads", "rows", "exposed", "dots", "transpose", "conflicts")
"""Those of `costmodel.counts` that have numbers."""


def table(found: Sequence[Known]) -> str:
    """One line a change."""
    lines = [f"{'as it is':44}{_judged(found, DEFAULT_CONSTANTS)}"]
    for field in fields(PriorConstants):
        value = getattr(DEFAULT_CONSTANTS, field.name)
        for factor in (0.0, 0.5, 2.0):
            changed = value * factor if factor or not _divides(field.name) else value * 1e6
            constants = replace(DEFAULT_CONSTANTS, **{field.name: changed})
            lines.append(f"{field.name + f' = {changed:g}':44}{_judged(found, constants)}")
    for module, name, value in _numbers():
        for factor in (0.0, 0.5, 2.0):
            with _set(module, name, value * factor):
                text = f"{module.rpartition('.')[2]}.{name} = {value * factor:g}"
                lines.append(f"{text:44}{_judged(found, DEFAULT_CONSTANTS)}")
    return "\n".join(lines)


def _divides(name: str) -> bool:
    """Whether nothing of it is said by a large value: rates and sizes are divided by."""
    return name.endswith(("ports", "width", "per_cycle", "norm", "latency", "ops", "ahead"))


def _judged(found: Sequence[Known], constants: PriorConstants) -> str:
    return summary([judge(one, constants) for one in found])


def _numbers() -> Iterator[tuple[str, str, float]]:
    for name in MODULES:
        module = import_module(f"costmodel.counts.{name}")
        for key, value in vars(module).items():
            if key.isupper() and isinstance(value, float):
                yield module.__name__, key, value


@contextmanager
def _set(module: str, name: str, value: float) -> Iterator[None]:
    owner = import_module(module)
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
