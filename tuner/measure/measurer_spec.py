"""Measurers by name (`--measurer`, a field of a job), and the targets for which they measure."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.schedules.target import Probes, Target

from .. import timeouts
from ..machine.native_target import load_target, unprobed_target
from ..machine.probe_merging import ProbingLateError
from ..process.control import Control
from .local_spec import local_factory
from .protocol import MeasurerError, MeasurerFactory

PROBING_SHARE = 0.5
"""The fraction of a run's time budget that probing may take."""

CHOICES = "local, replay:FILE, simulated:FILE or dask:tcp://HOST:PORT"


def parse_measurer(spec: str, should_stop: Callable[[], bool] | None = None) -> MeasurerFactory:
    """Return the factory for `local`, `replay:FILE`, `simulated:FILE` or `dask:ADDRESS`.

    A file is read here, so that an invalid file raises MeasurerError before any work starts. An
    invalid address raises MeasurerError too, but no connection is made. A fleet calls `should_stop`
    while it waits.
    """
    kind, _, path = spec.partition(":")
    if kind == "dask" and path:
        from .fleet.measurer import read_fleet  # Start-up: most runs have no fleet

        return read_fleet(path, should_stop)
    factory = local_factory(spec)
    if factory is None:
        raise MeasurerError(f"measurer must be {CHOICES}; got {spec!r}")
    return factory


def measured_target(
    measurer: str, spec: str = "native", threads: int | None = None, control: Control | None = None
) -> Target:
    """Return the target that `spec` names, for a run whose measurer is `measurer`.

    Probes of this machine are used only if it measures. With mocked timings, a search is the same
    on any machine. A fleet's machines have their own probes. If `threads` is None, the number in
    the file applies. Raise TargetError or FleetError if there is no such target. Raise
    MeasurementAborted if `control` aborts, also during probing.
    """
    kind, _, address = measurer.partition(":")
    if kind == "dask" and address:
        # Start-up: most runs have no fleet.
        from .fleet.machines import fleet_status, target_at, with_fleet_probes

        if not spec.endswith(".json"):
            return target_at(address, spec, threads)
        return with_fleet_probes(fleet_status(address), load_target(spec, threads, probe=False))
    if measurer == "local":
        return _probed_in_time(spec, threads, control or Control())
    if spec == "native":
        return unprobed_target(1 if threads is None else threads)
    return load_target(spec, threads, probe=False)


def _probed_in_time(spec: str, threads: int | None, control: Control) -> Target:
    """Return the target with its probes. If there is not enough time, the probes are old, doubtful
    or missing."""
    within_secs = PROBING_SHARE * control.left_secs
    if within_secs < timeouts.COMFORTABLE_PROBING_SECS:
        known = load_target(spec, threads, probe=False)
        if known.probes != Probes() or within_secs < timeouts.MIN_PROBING_SECS:
            return known
    try:
        return load_target(spec, threads, within_secs=within_secs, control=control)
    except ProbingLateError:
        return load_target(spec, threads, probe=False)
