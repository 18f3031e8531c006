"""The machines that have joined a fleet, groups of similar machines, and targets by name."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.schedules.errors import TargetError
from tilewright.schedules.record import Toolchain
from tilewright.schedules.target import Probes, Target

from ...codegen.version import CODEGEN_VERSION
from ...machine.native_target import unprobed_target
from .address import FleetError, check_listens, parse_address
from .messages import MachineDescription

log = logging.getLogger("tilewright.fleet")

ALIKE_RATIO = 1.1
"""Machines of one CPU model are not alike if their probes differ by more than this factor."""

LABEL = "tilewright"
"""The key under which a Dask worker publishes its `MachineDescription` and its metrics."""

_SHORTEST_PREFIX = 6


@dataclass(frozen=True, slots=True)
class FleetMachine:
    """A machine that has joined, and its state at the last heartbeat."""

    address: str
    name: str
    target: Target
    """The target for one thread, with the probes of the machine."""
    toolchain: Toolchain
    measurer: str
    resources: Mapping[str, float]
    """The number of requests that it measures concurrently, by resource name."""
    busy: bool = False
    measured: int = 0
    silent_secs: float = 0.0
    """The age of the last heartbeat."""

    @property
    def key(self) -> str:
        """The key of the machine's kind, which is the key of its target for one thread."""
        return self.target.key

    def to_json(self) -> dict[str, Any]:
        """Return the machine's entry in `tilewright fleet --json`."""
        return {
            "name": self.name,
            "address": self.address,
            "measurer": self.measurer,
            "target": {**self.target.to_json(), "key": self.key},
            "toolchain": {
                "codegen_version": self.toolchain.codegen_version,
                "llvmlite": self.toolchain.llvmlite,
                "llvm": self.toolchain.llvm,
            },
            "resources": dict(self.resources),
            "busy": self.busy,
            "measured": self.measured,
            "silent_secs": self.silent_secs,
        }


def resource_name(target: Target) -> str:
    """Return the Dask resource of machines of this kind. Each has one unit of it, for one request
    at a time."""
    return f"tilewright-{kind(target)}"


def kind(target: Target) -> str:
    """Return the key of the machines that can measure `target`, for any number of threads."""
    return replace(target, threads=1).key


def fleet_status(address: str, timeout_secs: float = 5.0) -> list[FleetMachine]:
    """Return the machines that have joined the scheduler at `address`, sorted by name.

    Raise MeasurerError if `address` is invalid, and FleetError if no scheduler answers there.
    Coroutines must not call this function.
    """
    where = parse_address(address)
    import distributed  # noqa: F401  # raises the error that names the missing package

    check_listens(where, timeout_secs)
    try:
        identity = asyncio.run(asyncio.wait_for(_identity(where, timeout_secs), timeout_secs))
    except (OSError, TimeoutError) as error:
        raise FleetError(f"no scheduler answers at {where}: {error!r}") from error
    return machines_of(identity)


async def _identity(address: str, timeout_secs: float) -> dict[str, Any]:
    from distributed.core import rpc
    from distributed.security import Security

    arguments = Security().get_connection_args("client")
    async with rpc(address, timeout=timeout_secs, connection_args=arguments) as scheduler:
        identity: dict[str, Any] = await scheduler.identity(n_workers=-1)
    return identity


def machines_of(identity: Mapping[str, Any]) -> list[FleetMachine]:
    """Return the machines among the workers in `identity`, a Dask scheduler's description. They are
    sorted by name.

    Workers are skipped if they are not machines of a Tilewright fleet, or are of another version.
    """
    machines: list[FleetMachine] = []
    for address, worker in identity.get("workers", {}).items():
        label = worker.get(LABEL)
        if label is None or worker.get("status", "running") != "running":
            continue
        try:
            description = MachineDescription.from_bytes(label)
        except (FleetError, TargetError) as error:
            log.debug("%s is not used: %s", address, error)
            continue
        resources = worker.get("resources") or {}
        if resource_name(description.target) not in resources:
            continue  # its queue would never start a request
        doing = worker.get("metrics", {}).get(LABEL, {})
        machines.append(
            FleetMachine(
                address=address,
                name=description.name,
                target=description.target,
                toolchain=description.toolchain,
                measurer=description.measurer,
                resources=resources,
                busy=bool(doing.get("busy", False)),
                measured=int(doing.get("measured", 0)),
                silent_secs=max(time.time() - float(worker.get("last_seen", 0.0)), 0.0),
            )
        )
    return sorted(machines, key=lambda m: (m.name, m.address))


# -- machines that may measure for one job


def able(machines: Iterable[FleetMachine], target: Target) -> list[FleetMachine]:
    """Return the machines that can measure `target` with code of this version."""
    return [
        m
        for m in machines
        if m.key == kind(target)
        and target.threads <= m.target.cores
        and m.toolchain.codegen_version in (0, CODEGEN_VERSION)  # 0 means mocked times
    ]


def alike(one: FleetMachine, other: FleetMachine) -> bool:
    """Return whether a search may mix the times of both machines: they have the same kind, the same
    toolchain and similar probes."""
    return (
        one.key == other.key
        and one.toolchain == other.toolchain
        and _alike_probes(one.target.probes, other.target.probes)
    )


def _alike_probes(one: Probes, other: Probes) -> bool:
    pairs = [
        (x, y)
        for known, found in (
            (one.peak_gflops, other.peak_gflops),
            (one.bandwidth_gbs, other.bandwidth_gbs),
        )
        for name in known.keys() & found.keys()
        for x, y in zip(known[name], found[name], strict=False)
    ]
    return all(max(pair) <= ALIKE_RATIO * min(pair) for pair in pairs)


def largest_group(machines: Sequence[FleetMachine]) -> list[FleetMachine]:
    """Return the largest group of machines that are all alike to the first machine of the group."""
    groups = [[m, *(o for o in machines if o is not m and alike(m, o))] for m in machines]
    return max(groups, key=len, default=[])


# -- the targets that `--target` may name


def fleet_target(
    machines: Sequence[FleetMachine], spec: str, threads: int | None, native: Target | None = None
) -> Target:
    """Return the target that `spec` names: the name of a machine, or the beginning of a target key.

    "native" selects the kind of `native` if such a machine or no machine has joined. Otherwise it
    selects the only kind that has joined. The target has the probes of the largest group of its
    machines. If `spec` does not name exactly one kind, raise TargetError with a list of all kinds.
    """
    if spec == "native" and native is not None and not machines:
        return native.with_threads(1 if threads is None else threads)
    kinds = {m.key: m for m in machines}
    chosen = _chosen(machines, spec, native)
    if len(chosen) != 1:
        known = ", ".join(sorted(f"{m.target.cpu} ({key[:12]})" for key, m in kinds.items()))
        raise TargetError(
            f"--target {spec}: "
            + (f"{len(chosen)} kinds of machines" if chosen else "no machine of this kind")
            + f" in the fleet; there are {known or 'no machines at all'}"
        )
    (key,) = chosen
    group = largest_group([m for m in machines if m.key == key])
    return group[0].target.with_threads(1 if threads is None else threads)


def target_at(address: str, spec: str, threads: int | None) -> Target:
    """Return the target that `spec` names in the fleet at `address` (see `fleet_target`). Raise
    FleetError if the fleet does not answer."""
    here = unprobed_target() if spec == "native" else None
    return fleet_target(fleet_status(address), spec, threads, here)


def _chosen(machines: Sequence[FleetMachine], spec: str, native: Target | None) -> set[str]:
    if spec == "native":
        keys = {m.key for m in machines}
        return {kind(native)} if native is not None and kind(native) in keys else keys
    named = {m.key for m in machines if m.name == spec}
    if named or len(spec) < _SHORTEST_PREFIX:
        return named
    return {m.key for m in machines if m.key.startswith(spec)}


def with_fleet_probes(machines: Sequence[FleetMachine], target: Target) -> Target:
    """Return `target` with the probes of its machines in the fleet, if there are any."""
    group = largest_group(able(machines, target))
    return replace(target, probes=group[0].target.probes) if group else target
