"""Documents and texts with something wrong in them: read, or refused with a typed error."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from tilewright.schedules import TilewrightError, Workload
from tilewright.schedules.workload.strict_json import parse_json_text

from .computation import Computation
from .spell_json import to_document
from .spell_notation import Notation, to_notation

_LEAVES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 10**39, 0.5, -0.0, 1e308, float("inf"),
    float("nan"), "", "inf", "-inf", "nan", "f32", "bf16", "bool", "v0", "v0 // 0", "v0 % 0",
    "v0 * v0", "((((", "v0 >= 1", "v0 == v0", "load", "all", "select", [], {}, [[]], "i" * 999,
    "9" * 60, "T0", "A0",
)  # fmt: skip
_PIECES = (
    "[", "]", "(", ")", ",", ";", "=", "+=", "max=", "*=", "//", "%", "/", "-", "!", "&&", " or ",
    "<", "==", "0", "1e999", "99999999999999999999", "inf", "where(", "f32(", "T0[", "x0a", ".",
    "\x00", "\u00e9", "'", "not ", "-1", "//0", "%0", "e", "_" * 70,
)  # fmt: skip


def check_mutations(computation: Computation, seed: int) -> str:
    """Twenty changes each to the document, its text and the notation; "read", or "refused".

    What is read must be read again from its own document, with the same key. Any exception but a
    `TilewrightError` goes through.
    """
    rng = random.Random(seed)
    document = to_document(computation, rng)
    notation = to_notation(computation, rng)
    read = 0
    for _ in range(20):
        read += _reads(lambda: Workload.from_json(_damaged(document, rng)))
        read += _reads(lambda: Workload.from_json(_damaged_text(document, rng)))
        read += _reads(lambda: _damaged_notation(notation, rng).workload())
    return "read" if read else "refused"


def _reads(make: Any) -> bool:
    try:
        workload: Workload = make()
        again = Workload.from_json(workload.to_json())
        assert again.key == workload.key
    except TilewrightError:
        return False
    return True


def _damaged(document: dict[str, Any], rng: random.Random) -> Any:
    """`document` with one to three values replaced, removed, doubled or swapped."""
    found = copy.deepcopy(document)
    for _ in range(rng.randint(1, 3)):
        places = list(_places(found))
        here, key = rng.choice(places)
        how = rng.random()
        if how < 0.5:
            here[key] = copy.deepcopy(rng.choice(_LEAVES))
        elif how < 0.65:
            del here[key]
        elif how < 0.8 and isinstance(here, list):
            here.insert(key, copy.deepcopy(here[key]))
        else:
            other, other_key = rng.choice(places)
            here[key] = copy.deepcopy(other[other_key])
    return found


def _places(value: Any) -> list[tuple[Any, Any]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    found = [(value, k) for k in keys]
    for k in keys:
        if isinstance(value[k], dict | list) and value[k]:
            found += _places(value[k])
    return found


def _damaged_text(document: dict[str, Any], rng: random.Random) -> Any:
    text = json.dumps(document)
    at, size = rng.randrange(len(text)), rng.choice((0, 1, 1, 5, 40))
    noise = "".join(rng.choice('{}[]",:0e-9.\\u\x00tfn') for _ in range(rng.randint(0, 4)))
    return parse_json_text((text[:at] + noise + text[at + size :]).encode())


def _damaged_notation(notation: Notation, rng: random.Random) -> Notation:
    text = notation.text
    for _ in range(rng.randint(1, 3)):
        at, size = rng.randrange(len(text) + 1), rng.choice((0, 0, 1, 2, 6))
        text = text[:at] + rng.choice(_PIECES) + text[at + size :]
    ranges = dict(notation.ranges)
    if ranges and rng.random() < 0.3:
        name = rng.choice(sorted(ranges))
        if rng.random() < 0.5:
            del ranges[name]
        else:
            ranges[name] = rng.choice((0, -1, 1, 2**31, 2**40))
    return Notation(text, notation.tensors, ranges)
