"""`GET /v1/fleet`: the machines that measure for this service."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from tilewright.service import timeouts
from tilewright.service.http.deps import State
from tilewright.service.http.schemas import problem_responses
from tilewright.service.resolve.targets import target_summary

router = APIRouter(prefix="/v1", tags=["fleet"])


class MachineOut(BaseModel):
    """A machine of the fleet. `target` describes it, for one thread. A job's `target` may be its
    `name` or a prefix of `target.key`. `silent_secs` is the time since its last heartbeat."""

    name: str
    target: dict[str, Any]
    cores: int
    toolchain: dict[str, Any]
    mocked: bool
    busy: bool
    measured: int
    silent_secs: float


class FleetOut(BaseModel):
    """`fleet`: whether this service has a fleet. Jobs with the measurer `dask` need a fleet."""

    fleet: bool
    machines: list[MachineOut]


@dataclass
class _LastStatus:
    lock: threading.Lock = field(default_factory=threading.Lock)
    address: str = ""
    at: float = float("-inf")
    machines: list[dict[str, Any]] = field(default_factory=list)


_known = _LastStatus()


@router.get(
    "/fleet", operation_id="getFleet", response_model=FleetOut, responses=problem_responses(503)
)
def get_fleet(state: State) -> dict[str, Any]:
    """The machines of the service's fleet, by name. If it has no fleet, `fleet` is false and the
    list is empty. The status is 503 (`fleet_unavailable`) while the fleet's scheduler does not
    answer."""
    address = state.settings.fleet
    return {"fleet": bool(address), "machines": _machines(address) if address else []}


def _machines(address: str) -> list[dict[str, Any]]:
    """Return the machines, read at most once per second. Raise FleetError if the scheduler does not
    answer."""
    # Start-up: a service without a fleet loads none of its code.
    from tilewright.tuner.measure.fleet.machines import fleet_status

    with _known.lock:
        if (
            _known.address != address
            or time.monotonic() - _known.at >= timeouts.FLEET_STATUS_CACHE_SECS
        ):
            _known.machines = [
                {
                    "name": m.name,
                    "target": target_summary(m.target),
                    "cores": m.target.cores,
                    "toolchain": m.to_json()["toolchain"],
                    "mocked": m.measurer != "local",
                    "busy": m.busy,
                    "measured": m.measured,
                    "silent_secs": m.silent_secs,
                }
                for m in fleet_status(address, timeouts.FLEET_STATUS_SECS)
            ]
            _known.address, _known.at = address, time.monotonic()
        return _known.machines
