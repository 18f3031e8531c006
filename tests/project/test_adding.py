"""The worked examples of `docs/adding.md` do what they say."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.support.paths import ROOT
from tests.support.schedules.spaces import target
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.costmodel.counts.counting import counts
from tilewright.costmodel.prior import Prior
from tilewright.schedules.nest.loop_ir import LoopKind, loops
from tilewright.schedules.sketches.analysis.stages import view_stage
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.space import ScheduleSpace


def example(heading: str) -> dict[str, Any]:
    """What the first Python block below a heading defines."""
    text = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8")
    section = text.split(f"## {heading}\n")[1]
    block = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {"__name__": __name__}
    exec(block[1], names)
    return names


@pytest.mark.parametrize("extents", [(1, 16), (7, 13), (3, 40), (5, 64)])
def test_a_kind_of_sketch_is_one_file(extents: tuple[int, int]) -> None:
    kind = example("A kind of sketch")["StripSketch"]
    m, n = extents
    workload = notation("Y[i,j] = max(X[i,j], 0) * b[j]", X=f"f32[{m},{n}]", b=f"f32[{n}]")
    workload = workload.normalised()
    machine = target(threads=2)
    part = kind(workload, view_stage(workload, "s0"), machine)
    sketch = ProgramSketch(workload, (), (part,))
    space = ScheduleSpace(workload, machine, (sketch,))
    settings = np.indices([len(k.values) for k in sketch.knobs]).reshape(len(sketch.knobs), -1).T
    for setting in settings[sketch.feasible(settings)]:
        nest = sketch.lowered(setting.tolist())[1]
        check_meaning(workload, nest)
        shared = [loop.extent for loop in loops(nest.body) if loop.kind is LoopKind.PARALLEL]
        assert counts(part, setting[None])["tasks"][0] == (shared[0] if shared else 1)
        assert np.isfinite(Prior(space).log2_secs(0, setting[None])[0])
