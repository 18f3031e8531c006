"""Stages that read neighbours of each other are computed in tiles with halos: which they are, what
their loops look like, and that they mean what the expression does."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.golden_text import Golden
from tests.support.schedules.spaces import SMALL, settings, target
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import (
    Allocate,
    LoopKind,
    StoreElement,
    buffers_allocated,
    leaves,
    loops,
    walk,
)
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.sketches.stencils.sketch import StencilSketch
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

BLUR = "a[y,x] = X[y,x] + X[y,x+1] + X[y,x+2]; Y[y,x] = a[y,x] + a[y+1,x] + a[y+2,x]"
SQUARES = (
    "u[y,x] = X[y,x+2] - X[y,x] + 2 * (X[y+1,x+2] - X[y+1,x]);"
    "v[y,x] = X[y+2,x] - X[y,x] + 2 * (X[y+2,x+1] - X[y,x+1]);"
)
CORNERS = (
    f"{SQUARES} p[y,x] = u[y,x] * u[y,x]; q[y,x] = v[y,x] * v[y,x];"
    "s[y,x] = p[y,x] + p[y,x+1] + p[y+1,x] + p[y+1,x+1];"
    "t[y,x] = q[y,x] + q[y,x+1] + q[y+1,x] + q[y+1,x+1];"
    "Y[y,x] = s[y,x] * t[y,x] - 2 * (s[y,x] + t[y,x])"
)


def blur(rows: int, columns: int, dtype: str = "f32") -> Workload:
    sizes = {"y": rows, "x": columns}
    return from_sizes(BLUR, sizes, X=f"{dtype}[{rows + 2},{columns + 2}]", a=rows + 2)


def from_sizes(text: str, sizes: dict[str, int], a: int, X: str) -> Workload:
    return notation(text, sizes, X=X)
