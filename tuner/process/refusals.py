"""What a helper process refuses, as the answer to a request: the one who asked raises it again."""

from __future__ import annotations

from typing import Any

from tilewright.schedules.errors import WorkloadError

from .frames import Frame


def refusal(error: WorkloadError) -> Frame:
    """The answer of a process that was given a workload it cannot take."""
    return Frame({"refused": {"detail": str(error), "code": error.code, "pointer": error.pointer}})


def raise_refusal(document: dict[str, Any]) -> None:
    """The WorkloadError that `document` tells of, if it does."""
    if "refused" in document:
        said = document["refused"]
        raise WorkloadError(said["detail"], code=said["code"], pointer=said["pointer"])
