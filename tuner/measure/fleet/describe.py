"""The description of this machine when it joins a fleet."""

from __future__ import annotations

import socket
from pathlib import Path

from tilewright.schedules.errors import TargetError

from ...machine.native_target import load_target, native_target, unprobed_target
from ..local_spec import local_toolchain
from ..protocol import MeasurerError
from .messages import MachineDescription


def describe(measurer: str = "local", target: str = "native", name: str = "") -> MachineDescription:
    """This machine, probed if it measures itself; or the one `target` (a file) that it plays with
    mocked timings. `name` "": the host's.

    MeasurerError, TargetError for an impossible description.
    """
    name = name or socket.gethostname()
    if measurer == "local":
        if target != "native":
            raise TargetError("a machine that measures is described by itself: leave --target out")
        return MachineDescription(name, native_target(), local_toolchain(measurer))
    kind, _, path = measurer.partition(":")
    if kind not in ("simulated", "replay"):
        raise MeasurerError(
            f"a machine measures local, simulated:FILE or replay:FILE, not {measurer}"
        )
    here = unprobed_target() if target == "native" else load_target(target, 1, probe=False)
    mocked = f"{kind}:{Path(path).resolve()}"
    return MachineDescription(name, here, local_toolchain(mocked), mocked)
