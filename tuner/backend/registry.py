"""The list of back ends, and the selection of the back end for a target."""

from __future__ import annotations

from tilewright.schedules.errors import TargetError
from tilewright.schedules.target import Target

from .cpu.backend import Cpu
from .protocol import Backend

BACKENDS: tuple[Backend, ...] = (Cpu(),)


def backend_for(target: Target) -> Backend:
    """Return the first back end that supports `target`. Raise TargetError if there is none."""
    for backend in BACKENDS:
        if backend.makes(target):
            return backend
    raise TargetError(f"no back end makes kernels for {target.triple}")
