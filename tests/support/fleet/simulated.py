"""Files of simulated machines, and candidates for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.support.synthetic_sketch import synthetic_space
from tilewright.schedules.target import Target
from tilewright.tuner.measure.protocol import MeasureRequest
from tilewright.tuner.search.setting_grid import setting_grids
from tilewright.tuner.testing import mocked_target

SPACE = synthetic_space(64, 64, 64, small=True)

TARGET = replace(mocked_target(), probes=SPACE.target.probes)
"""What the machines pass for: LLVM knows it, and it was probed."""


def candidates(count: int) -> list[MeasureRequest]:
    """`count` legal candidates of `SPACE`, all different."""
    grid = setting_grids(SPACE)[0]
    codes = next(grid.feasible_codes())[:count].tolist()
    assert len(codes) == count
    return [MeasureRequest(i + 1, SPACE.trace(grid.candidate(c))) for i, c in enumerate(codes)]


def write_machine(folder: Path, name: str, settings: Mapping[str, float]) -> tuple[str, str]:
    """What to give `describe`: a measurer, and the file of `TARGET`."""
    machine, target = folder / f"{name}.json", folder / "target.json"
    machine.write_text(json.dumps(dict(settings)))
    target.write_text(json.dumps(TARGET.to_json()))
    return f"simulated:{machine}", str(target)


def another_target(threads: int = 1) -> Target:
    """A target of another kind than `TARGET`."""
    return replace(TARGET, cpu="x86-64-v2", features=("sse4.2",), vector_bits=128, threads=threads)
