"""Which back end makes kernels for a target: the one list of them."""

from __future__ import annotations

from tilewright.schedules.errors import TargetError
from tilewright.schedules.target import Target

from .cpu.backend import Cpu
from .protocol import Backend

BACKENDS: tuple[Backend, ...] = (Cpu(),)


def backend_for(target: Target) -> Backend:
    """The first that makes kernels for `target`; TargetError if none does."""
    for backend in BACKENDS:
        if backend.makes(target):
            return backend
    raise TargetError(f"no back end makes kernels for {target.triple}")
