"""The messages between coordinator and machines, as canonical JSON.

The only pickled object is the name of the function `host.run`. Therefore `WIRE_VERSION` reveals a
machine of another version, and unpickling does not fail.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.record import MeasureResult, Toolchain
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace

from ..protocol import MeasureRequest
from .address import FleetError

WIRE_VERSION = 1

Purpose = Literal["measure", "confirm"]


@dataclass(frozen=True, slots=True)
class MachineDescription:
    """The description that a machine sends when it joins."""

    name: str
    target: Target
    """The target for one thread, with the machine's probes."""
    toolchain: Toolchain
    measurer: str = "local"
    """"local", or the mocked measurer that the machine uses."""

    def to_bytes(self) -> bytes:
        return canonical_bytes(
            {
                "version": WIRE_VERSION,
                "name": self.name,
                "target": self.target.to_json(),
                "toolchain": asdict(self.toolchain),
                "measurer": self.measurer,
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes | str) -> MachineDescription:
        """Return the description in `data`. Raise FleetError if it is invalid or of another
        version."""
        document = _document(data)
        try:
            return cls(
                name=str(document["name"]),
                target=Target.from_json(document["target"]),
                toolchain=Toolchain(**document["toolchain"]),
                measurer=str(document["measurer"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise FleetError(f"not the description of a machine: {error}") from error


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """A request for one machine to measure candidates.

    Notes about it are published under `topic`, with this `task`.
    """

    task: str
    topic: str
    purpose: Purpose
    workload: dict[str, Any]
    target: Target
    seed: int
    requests: Mapping[int, MeasureRequest]
    """The candidates, by their position in the coordinator's batch."""

    def to_bytes(self) -> bytes:
        return canonical_bytes(
            {
                "version": WIRE_VERSION,
                "task": self.task,
                "topic": self.topic,
                "purpose": self.purpose,
                "workload": self.workload,
                "target": self.target.to_json(),
                "seed": self.seed,
                "requests": [
                    {
                        "position": position,
                        "trial": request.trial,
                        "trace": request.trace.to_json(),
                        "compared": request.compared,
                    }
                    for position, request in self.requests.items()
                ],
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> FleetRequest:
        """Return the request in `data`. Raise FleetError if it is of another version."""
        document = _document(data)
        return cls(
            task=document["task"],
            topic=document["topic"],
            purpose=document["purpose"],
            workload=document["workload"],
            target=Target.from_json(document["target"]),
            seed=document["seed"],
            requests={
                r["position"]: MeasureRequest(
                    r["trial"], Trace.from_json(r["trace"]), compared=r["compared"]
                )
                for r in document["requests"]
            },
        )


@dataclass(frozen=True, slots=True)
class Note:
    """A message from a machine about a request.

    "begun" comes first, then one "result" for each candidate (with `position`, and with the seconds
    that the machine predicts for its full check, 0.0 if unknown), then "ended".
    "refused" ends a request that this machine cannot measure (`error` is "WorkloadError" or
    "TargetError"). "bug" ends a request that failed because of a bug. For both, `detail` has the
    reason.
    """

    task: str
    kind: Literal["begun", "result", "ended", "refused", "bug"]
    position: int = -1
    result: MeasureResult | None = None
    check_secs: float = 0.0
    error: str = ""
    code: str = ""
    detail: str = ""

    def to_bytes(self) -> bytes:
        document: dict[str, Any] = {"version": WIRE_VERSION, "task": self.task, "kind": self.kind}
        if self.result is not None:
            document |= {"position": self.position, "result": self.result.to_json()}
            if self.check_secs:
                document["check_secs"] = self.check_secs
        if self.detail:
            document |= {"error": self.error, "code": self.code, "detail": self.detail}
        return canonical_bytes(document)

    @classmethod
    def from_bytes(cls, data: bytes) -> Note:
        """Return the note in `data`. Raise FleetError if it is invalid or of another version."""
        document = _document(data)
        try:
            result = document.get("result")
            return cls(
                task=str(document["task"]),
                kind=document["kind"],
                position=int(document.get("position", -1)),
                result=None if result is None else MeasureResult.from_json(result),
                check_secs=float(document.get("check_secs", 0.0)),
                error=str(document.get("error", "")),
                code=str(document.get("code", "")),
                detail=str(document.get("detail", "")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FleetError(f"a machine sent an invalid note: {error}") from error


def _document(data: bytes | str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise FleetError(f"the fleet sent a message that is not JSON: {error}") from error
    version = document.get("version") if isinstance(document, dict) else None
    if version != WIRE_VERSION:
        raise FleetError(
            f"the fleet uses protocol version {version!r}, this program {WIRE_VERSION}: "
            "install the same Tilewright on every machine"
        )
    assert isinstance(document, dict)
    return document
