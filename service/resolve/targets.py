"""Targets and measurers in commands and requests, and checks against this machine."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.schedules.target import Target
    from tilewright.schedules.workload.workload import Workload

# Start-up: a query for a named target loads no detection and no measuring.

FILE_MEASURERS = ("replay", "simulated")


def read_target(
    spec: str, threads: int | None, *, probe: bool = True, fresh: bool = False
) -> Target:
    """Return the target of a user's `spec`. Without `probe`, nothing is measured. Raise TargetError
    if `spec` is invalid."""
    from tilewright.tuner.machine.native_target import load_target, native_target

    if spec == "native" and fresh:
        return native_target(1 if threads is None else threads, probe=probe, fresh=True)
    return load_target(spec, threads, probe=probe)


@cache
def this_machine(threads: int = 1) -> Target:
    """Return the machine of this process without probes; it is detected once. Raise TargetError if
    it cannot be described."""
    from tilewright.tuner.machine.native_target import unprobed_target

    return unprobed_target(threads)


def target_of(spec: str | dict[str, Any], threads: int | None) -> Target:
    """Return the target of a request's `target` field, without probes; no file is read. Raise
    TargetError if it is invalid. LLVM may abort for an invalid description, so a helper process
    checks it once."""
    from tilewright.schedules.target import Target
    from tilewright.tuner.machine.x86_levels import is_level, level_target

    if isinstance(spec, str):
        if is_level(spec):
            return level_target(spec, 1 if threads is None else threads)
        return this_machine(1 if threads is None else threads)
    target = Target.from_json(spec)
    _check_known(target)
    return target if threads is None else target.with_threads(threads)


def _check_known(target: Target) -> None:
    from tilewright.tuner.machine.llvm_names import check_target
    from tilewright.tuner.machine.x86_levels import is_well_known

    here = this_machine()
    if not is_well_known(target, here.triple, here.cpu, here.features):
        check_target(target)


def is_mocked(measurer: str) -> bool:
    """Return whether the measurer's times are replayed or simulated."""
    return measurer.partition(":")[0] in FILE_MEASURERS


def fleet_of(measurer: str) -> str:
    """Return the address of the fleet in `measurer`, or "" if there is none."""
    kind, _, address = measurer.partition(":")
    return address if kind == "dask" else ""


def fleet_target_of(spec: str | dict[str, Any], threads: int | None, fleet: str) -> Target:
    """Return the target of a request's `target` field for a job on a fleet. Raise TargetError or
    FleetError."""
    from tilewright.tuner.measure.fleet.machines import fleet_status, target_at, with_fleet_probes

    if isinstance(spec, str):
        return target_at(fleet, spec, threads)
    target = target_of(spec, threads)
    if target.probes.peak_gflops:
        return target  # the request has probes; the machine need not be in the fleet now
    return with_fleet_probes(fleet_status(fleet), target)


def check_fits(workload: Workload) -> None:
    """Raise WorkloadError "too_large" if the workload's tensors need more than half of this
    machine's memory."""
    import psutil

    from tilewright.schedules.workload.size import check_limits

    check_limits(workload, max_bytes=psutil.virtual_memory().total // 2)


def check_measurer(spec: str) -> None:
    """Raise MeasurerError if the file of timings in `spec` cannot be used."""
    if spec == "local":
        return  # Start-up: the local measurer loads most of the tuner
    from tilewright.tuner.measure.measurer_spec import parse_measurer

    parse_measurer(spec)


def target_summary(target: Target) -> dict[str, Any]:
    return {
        "key": target.key,
        "cpu": target.cpu,
        "threads": target.threads,
        "triple": target.triple,
        "vector_bits": target.vector_bits,
    }
