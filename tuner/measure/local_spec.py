"""Measurers of a single machine by name: `local`, or timings from a file."""

from __future__ import annotations

from tilewright.schedules.record import Toolchain

from .mocked.replay import read_replay
from .mocked.simulated import read_simulated
from .protocol import MeasurerError, MeasurerFactory


def local_factory(spec: str) -> MeasurerFactory | None:
    """Return the factory for `local`, `replay:FILE` or `simulated:FILE`, or None for other names.

    The file is read here, so that an invalid file raises MeasurerError before any work starts.
    """
    kind, _, path = spec.partition(":")
    if kind == "local" and not path:
        # Start-up: mocked timings start no processes.
        from .local import LocalMeasurer

        return LocalMeasurer
    if kind == "replay" and path:
        return read_replay(path)
    if kind == "simulated" and path:
        return read_simulated(path)
    return None


def local_toolchain(spec: str) -> Toolchain:
    """Return the toolchain of the measurer `spec`. Raise MeasurerError if `spec` is not a measurer
    of this machine."""
    if spec == "local":
        from ..emit.object_code import toolchain  # Start-up: it loads LLVM

        return toolchain()
    factory = local_factory(spec)
    found = getattr(factory, "toolchain", None)
    if not isinstance(found, Toolchain):
        raise MeasurerError(f"measurer must be local, simulated:FILE or replay:FILE; got {spec}")
    return found
