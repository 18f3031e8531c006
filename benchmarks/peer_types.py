"""What the peers of both libraries are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
Call = Callable[[], object]
Sizes = Mapping[str, int]

LAYERNORM_EPS = 1e-5
