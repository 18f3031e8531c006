"""Parses the arguments of fast commands without Typer, whose import takes longer than such a
command.

Only unambiguous arguments are parsed here. In all other cases (an unknown flag, a missing value or
one that begins like a flag, a request for help) Typer parses them by the same description of the
command, and reports errors. A test compares the two.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from importlib import import_module
from inspect import signature
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from tilewright.service.argument_specs import Argument, Option

FAST_COMMANDS: Mapping[str, str] = {
    "best": "tilewright.service.cli.best",
    "tune": "tilewright.service.cli.tune",
}
"""The module with the function of each fast command."""

_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
_DECIMAL = re.compile(r"\d+(\.\d*)?(e-?\d{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ArgumentSlot:
    """The destination of a value: parameter `name` of the command, or field `name` of its parameter
    `group`."""

    group: str
    name: str
    type: Any
    spec: Option | Argument


def run_quickly(arguments: Sequence[str]) -> bool:
    """Run the command if it is fast and unambiguous; return whether it was run."""
    if not arguments or arguments[0] not in FAST_COMMANDS:
        return False
    name, *words = arguments
    function = getattr(import_module(FAST_COMMANDS[name]), name)
    values = read(function, words)
    if values is None:
        return False
    function(**values)
    return True


def read(function: Callable[..., None], words: Sequence[str]) -> dict[str, Any] | None:
    """Return the arguments of `function`, parsed from `words`, or None if Typer must parse them."""
    groups = groups_of(function)
    slots = list(slots_of(function))
    options = [(p.spec, p) for p in slots if isinstance(p.spec, Option)]
    flags = {spec.flag: slot for spec, slot in options}
    alone = next((p for p in slots if isinstance(p.spec, Argument)), None)
    if any(spec.envvar is not None and spec.envvar in os.environ for spec, _ in options):
        return None
    found: dict[str, Any] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        flag, equals, value = word.partition("=")
        slot = flags.get(flag) if word.startswith("-") else alone
        if slot is None or not word:
            return None
        if slot is alone:
            value = word
        elif slot.type is bool:
            value = "" if equals else flag
        elif not equals:
            value = left.pop(0) if left else ""
        if not value or (value.startswith("-") and slot.type is not bool):
            return None
        made = _parsed(slot, value)
        if made is None or (slot.name in found and not isinstance(made, list)):
            return None
        found[slot.name] = [*found.get(slot.name, []), *made] if isinstance(made, list) else made
    return _grouped(groups, slots, found)


def groups_of(function: Callable[..., None]) -> dict[str, type[Any]]:
    """Return the parameters of `function` that are groups of options."""
    hints = get_type_hints(function)
    names = signature(function).parameters
    return {n: hints[n] for n in names if isinstance(hints[n], type) and is_dataclass(hints[n])}


def slots_of(function: Callable[..., None]) -> list[ArgumentSlot]:
    groups = groups_of(function)
    found = []
    hints = get_type_hints(function, include_extras=True)
    for name in signature(function).parameters:
        if name not in groups:
            found.append(_slot("", name, hints[name]))
            continue
        own = get_type_hints(groups[name], include_extras=True)
        found += [_slot(name, f.name, own[f.name]) for f in fields(groups[name])]
    return found


def _slot(group: str, name: str, hint: Any) -> ArgumentSlot:
    assert get_origin(hint) is Annotated, f"{name}: not described"
    plain, spec = get_args(hint)
    return ArgumentSlot(group, name, plain, spec)


def _parsed(slot: ArgumentSlot, text: str) -> Any:
    """Return the value of one argument, or None if Typer must parse it."""
    (kind,) = {a for a in get_args(slot.type) if a is not NoneType} or {slot.type}
    if get_origin(kind) is list or get_origin(slot.type) is list:
        return [text]
    if kind is bool:
        return True
    if kind is str:
        return text
    if kind is int:
        least = slot.spec.minimum if isinstance(slot.spec, Option) else None
        right = _WHOLE.fullmatch(text) and (least is None or int(text) >= least)
        return int(text) if right else None
    if kind is float:
        return float(text) if _DECIMAL.fullmatch(text) else None
    if issubclass(kind, StrEnum):
        return kind(text) if text in list(kind) else None
    return None


def _grouped(
    groups: Mapping[str, type[Any]], slots: Sequence[ArgumentSlot], found: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of the function, with the groups built."""
    values = {p.name: found[p.name] for p in slots if not p.group and p.name in found}
    for name, group in groups.items():
        own = {p.name: found[p.name] for p in slots if p.group == name and p.name in found}
        values[name] = group(**own)
    return values
