"""One computation by three front ends: all take it or all refuse it, and its key is one."""

from __future__ import annotations

import random
from collections.abc import Callable

from tilewright.schedules import Workload, WorkloadError

from .computation import Computation, reads
from .spell_json import to_document
from .spell_notation import to_notation
from .spell_python import by_python

NOT_PROVED = "out_of_bounds"


class Finding(AssertionError):  # noqa: N818 (it is what was looked for)
    """Something the product must not do."""


def front_ends(computation: Computation, seed: int) -> dict[str, Callable[[], Workload]]:
    """The computation's workload by each front end, twice where it leaves a choice."""
    return {
        "json": lambda: Workload.from_json(to_document(computation, random.Random(seed))),
        "json again": lambda: Workload.from_json(to_document(computation, random.Random(seed + 1))),
        "python": lambda: by_python(computation, random.Random(seed)),
        "notation": lambda: to_notation(computation, random.Random(seed)).workload(),
    }


def check_fronts(computation: Computation, seed: int) -> str:
    """What all front ends made of it: "accepted", or the code of the refusal. Finding if they
    differ, or if the document of what one made is not the same workload."""
    made: dict[str, Workload] = {}
    refused: dict[str, WorkloadError] = {}
    for name, make in front_ends(computation, seed).items():
        try:
            made[name] = make()
        except WorkloadError as error:
            refused[name] = error
    if refused:
        return _refusal(computation, made, refused)
    keys = {name: workload.key for name, workload in made.items()}
    if len(set(keys.values())) > 1:
        texts = {n: w.canonical_bytes.decode() for n, w in made.items()}
        raise Finding(f"keys differ: {keys}\n" + "\n".join(f"{n}: {t}" for n, t in texts.items()))
    for name, workload in made.items():
        _check_document(name, workload)
    return "accepted"


def _refusal(
    computation: Computation, made: dict[str, Workload], refused: dict[str, WorkloadError]
) -> str:
    codes = {name: error.code for name, error in refused.items()}
    bare = any(not r.padded for s in computation.stages for r in reads(s.body))
    # Notation has no reads without padding: what the others cannot prove inside is zero there.
    if bare and set(codes.values()) == {NOT_PROVED} and list(made) == ["notation"]:
        return NOT_PROVED
    if made or len(set(codes.values())) > 1:
        told = "\n".join(f"{name}: {error}" for name, error in refused.items())
        raise Finding(f"taken by {sorted(made) or 'none'}, refused by {codes}: {told}")
    return next(iter(codes.values()))


def _check_document(name: str, workload: Workload) -> None:
    again = Workload.from_json(workload.to_json())
    if again.key != workload.key:
        raise Finding(f"{name}: its document has another key")
    normal = workload.normalised()
    read = Workload.from_json(normal.to_json())
    if read.key != workload.key:
        raise Finding(f"{name}: the document of its normal form has another key")
    if read.normalised() != normal:
        raise Finding(f"{name}: the normal form is not its own normal form")
