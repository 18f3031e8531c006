"""Views of machines: this machine, and the machines of its fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.schedules.errors import TargetError
from tilewright.service import timeouts
from tilewright.service.http.pages.views import MachineView, machine_view
from tilewright.service.resolve import targets

if TYPE_CHECKING:
    from tilewright.db import Store
    from tilewright.schedules.target import Target


def this_machine() -> Target | None:
    """Return this machine with its cached probes, or None if it cannot be described. Nothing is
    measured."""
    try:
        return targets.target_of("native", None)
    except TargetError:
        return None


def own_view(store: Store) -> list[MachineView]:
    """Return the machine of this service, if it can be described. If no probes are cached, those of
    its last job are used."""
    target = this_machine()
    if target is None:
        return []
    document = target.to_json()
    if not is_probed(document):
        document = store.target(target.key) or document
    return [machine_view("This machine", "runs this service", document, target.key)]


def is_probed(document: Mapping[str, Any]) -> bool:
    """Return whether a target document has measured rates."""
    return bool((document.get("probes") or {}).get("peak_gflops"))


def joined_views(address: str) -> list[MachineView]:
    """Return the machines of the fleet at `address`. Raise MeasurerError if the address is invalid,
    FleetError if the scheduler does not respond."""
    # Start-up: a service without a fleet loads none of its code.
    from tilewright.tuner.measure.fleet.machines import fleet_status

    found = [machine.to_json() for machine in fleet_status(address, timeouts.FLEET_STATUS_SECS)]
    return [
        machine_view(m["name"], _doing(m), m["target"], m["target"]["key"], _silent(m))
        for m in sorted(found, key=lambda m: (m["target"]["key"], m["name"]))
    ]


def _silent(machine: dict[str, Any]) -> bool:
    return float(machine["silent_secs"]) > timeouts.MACHINE_SILENT_SECS


def _doing(machine: dict[str, Any]) -> str:
    if _silent(machine):
        return f"silent for {machine['silent_secs']:.0f} s"
    return f"{'measures' if machine['busy'] else 'waits'}, {machine['measured']} measured so far"
