"""Measurers of a single machine by name: the machine itself, or timings from a file."""

from __future__ import annotations

from tilewright.schedules.record import Toolchain

from .mocked.replay import read_replay
from .mocked.simulated import read_simulated
from .protocol import MeasurerError, MeasurerFactory


def local_factory(spec: str) -> MeasurerFactory | None:
    """The factory for `local`, `replay:FILE` or `simulated:FILE`; None for anything else.

    A file is read here, once, so a bad one is an error before any work starts: MeasurerError.
    """
    kind, _, path = spec.partition(":")
    if kind == "local" and not path:
        # Start-up: mocked timings need no process for a real machine.
        from .local import LocalMeasurer

        return LocalMeasurer
    if kind == "replay" and path:
        return read_replay(path)
    if kind == "simulated" and path:
        return read_simulated(path)
    return None


def local_toolchain(spec: str) -> Toolchain:
    """The toolchain of the measurer `spec`. MeasurerError if it is not one of a single machine."""
    if spec == "local":
        from ..emit.object_code import toolchain  # Start-up: it loads LLVM

        return toolchain()
    factory = local_factory(spec)
    found = getattr(factory, "toolchain", None)
    if not isinstance(found, Toolchain):
        raise MeasurerError(f"a machine measures local, simulated:FILE or replay:FILE, not {spec}")
    return found
