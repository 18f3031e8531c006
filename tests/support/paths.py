"""Where things lie in the repository, and the targets of its examples."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tilewright.schedules.target import Target

ROOT = Path(__file__).parents[2]
TARGET_FILES = sorted((ROOT / "examples" / "targets").glob("*.json"))


def example_target(cpu: str, threads: int | None = None) -> Target:
    """The machine `cpu` of `examples/targets`, whole or with so many threads."""
    path = ROOT / "examples" / "targets" / f"{cpu}.json"
    target = Target.from_json(json.loads(path.read_text(encoding="utf-8")))
    return target if threads is None else replace(target, threads=threads)
