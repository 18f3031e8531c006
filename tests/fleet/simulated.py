"""Files of simulated machines, and candidates for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.synthetic_sketch import synthetic_space
from tuner.measure.protocol import MeasureRequest
from tuner.search.lattice import lattices

SPACE = synthetic_space(64, 64, 64, small=True)


def candidates(count: int) -> list[MeasureRequest]:
    """`count` legal candidates of `SPACE`, all different."""
    grid = lattices(SPACE)[0]
    codes = next(grid.feasible_codes())[:count].tolist()
    assert len(codes) == count
    return [MeasureRequest(i + 1, SPACE.trace(grid.candidate(c))) for i, c in enumerate(codes)]


def write_machine(folder: Path, name: str, settings: Mapping[str, float]) -> tuple[str, str]:
    """What to give `describe`: a measurer, and the file of `SPACE`'s target."""
    machine, target = folder / f"{name}.json", folder / "target.json"
    machine.write_text(json.dumps(dict(settings)))
    target.write_text(json.dumps(SPACE.target.to_json()))
    return f"simulated:{machine}", str(target)
