"""The description that this machine sends when it joins a fleet."""

from __future__ import annotations

import socket
from pathlib import Path

from tilewright.schedules.errors import TargetError

from ...machine.native_target import load_target, native_target, unprobed_target
from ..local_spec import local_toolchain
from ..protocol import MeasurerError
from .messages import MachineDescription


def describe(measurer: str = "local", target: str = "native", name: str = "") -> MachineDescription:
    """Return the description of this machine. It has probes if the machine itself measures.

    With mocked timings, it is the description of `target`, which is a file or this machine. If
    `name` is "", the host's name is used. Raise MeasurerError or TargetError for invalid arguments.
    """
    name = name or socket.gethostname()
    if measurer == "local":
        if target != "native":
            raise TargetError("--target is only for mocked timings: leave it out")
        return MachineDescription(name, native_target(), local_toolchain(measurer))
    kind, _, path = measurer.partition(":")
    if kind not in ("simulated", "replay"):
        raise MeasurerError(
            f"measurer must be local, simulated:FILE or replay:FILE; got {measurer}"
        )
    here = unprobed_target() if target == "native" else load_target(target, 1, probe=False)
    mocked = f"{kind}:{Path(path).resolve()}"
    return MachineDescription(name, here, local_toolchain(mocked), mocked)
