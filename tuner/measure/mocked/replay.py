"""A measurer that replays recorded timings: `--measurer replay:FILE`.

FILE has one JSON object per line. A recorded candidate is `{"workload_key", "trace", "status",
"run_secs": [...]}`, optionally with `"target_key"` and `"detail"`. A line of `tilewright export` is
accepted too. A first line `{"replay": 1, "missing": "nearest"}` selects the result of a trace that
is not recorded: `"lost"` (the default), `"fail"`, or `"nearest"`, the time of the recorded trace
that differs in the fewest steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.record import MeasureResult, MeasureStatus, Toolchain
from tilewright.schedules.target import Target
from tilewright.schedules.trace_document import current_steps, trace_key
from tilewright.schedules.workload.workload import Workload

from ..protocol import MeasureRequest, MeasurerError, OnResult, measure_each
from .timings_file import file_tag, parse_object, read_text

REPLAY_VERSION = 1
MISSING = ("lost", "fail", "nearest")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded candidate."""

    workload_key: str
    target_key: str | None
    """None means that the timing applies to every target."""
    trace: list[Any]
    result: MeasureResult
    confirmed: bool = False
    """Whether the candidate passed a full check."""


@dataclass(frozen=True, slots=True)
class ReplayFile:
    """A file of timings. Calling the object opens a measurer for one workload on one target."""

    recorded: tuple[Recorded, ...]
    missing: str = "lost"
    tag: str = ""

    def __call__(self, workload: Workload, target: Target, seed: int) -> ReplayMeasurer:
        mine = [
            r
            for r in self.recorded
            if r.workload_key == workload.key and r.target_key in (None, target.key)
        ]
        by_trace: dict[bytes, Recorded] = {}
        for entry in sorted(mine, key=lambda entry: entry.confirmed):
            by_trace.setdefault(trace_key(entry.trace), entry)
        return ReplayMeasurer(by_trace, self.missing, self.toolchain)

    @property
    def toolchain(self) -> Toolchain:
        """A toolchain of code generator version 0, so that real records replace replayed ones."""
        return Toolchain(0, "replay", self.tag)


@dataclass(frozen=True, slots=True)
class ReplayMeasurer:
    """A `Measurer` that looks up results of identical traces in the recorded timings.

    Records of trials have priority over records of full checks, and earlier records over later
    ones.
    """

    by_trace: dict[bytes, Recorded]
    missing: str
    toolchain: Toolchain

    def measure(
        self, requests: Sequence[MeasureRequest], on_result: OnResult | None = None
    ) -> list[MeasureResult]:
        return measure_each(requests, self._answer, on_result)

    def confirm(self, request: MeasureRequest) -> MeasureResult:
        """Return the recorded result, which was verified when it was recorded."""
        return self._answer(request)

    def _answer(self, request: MeasureRequest) -> MeasureResult:
        trace = request.trace.to_json()
        entry = self.by_trace.get(trace_key(trace))
        if entry is not None:
            return entry.result
        if self.missing == "nearest" and self.by_trace:
            return self._nearest(trace)
        status = MeasureStatus.RUN_CRASH if self.missing == "fail" else MeasureStatus.LOST
        detail = f"not among the {len(self.by_trace)} recorded traces of this workload and target"
        return MeasureResult(status, detail=detail)

    def _nearest(self, trace: list[Any]) -> MeasureResult:
        """Return the result of the recorded trace that differs in the fewest steps."""
        steps = {canonical_bytes(step) for step in trace}

        def distance(item: tuple[bytes, Recorded]) -> tuple[int, bytes]:
            other = {canonical_bytes(step) for step in current_steps(item[1].trace)}
            return len(steps ^ other), item[0]

        return min(self.by_trace.items(), key=distance)[1].result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Do nothing, because there are no processes to end."""


def read_replay(path: str | Path) -> ReplayFile:
    """Return the recorded timings of a file. Raise MeasurerError, which names the line, if a line
    is invalid."""
    recorded: list[Recorded] = []
    missing = "lost"
    text = read_text(path)
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        document = parse_object(line, where)
        if "replay" in document:
            missing = _header(document, where)
        elif _is_candidate(document):
            recorded.append(_recorded(document, where))
    if not recorded:
        raise MeasurerError(f"{path}: has no recorded candidate")
    return ReplayFile(tuple(recorded), missing, file_tag(text.encode()))


def _is_candidate(document: dict[str, Any]) -> bool:
    """Return whether a line is a timing. Exports also have lines without a trace (workloads,
    headers)."""
    body = document.get("record", document)
    return isinstance(body, dict) and "trace" in body


def _header(document: dict[str, Any], where: str) -> str:
    if document["replay"] != REPLAY_VERSION:
        raise MeasurerError(
            f"{where}: version must be {REPLAY_VERSION}, got {document['replay']!r}"
        )
    missing = document.get("missing", "lost")
    if missing not in MISSING:
        raise MeasurerError(
            f"{where}: missing must be one of {', '.join(MISSING)}; got {missing!r}"
        )
    return str(missing)


def _positive(value: object) -> float | None:
    """Return `value` as a float if it is a number of at least 0, otherwise None."""
    return float(value) if isinstance(value, int | float) and value >= 0 else None


def _recorded(document: dict[str, Any], where: str) -> Recorded:
    body = document.get("record", document)
    result = body.get("result", body)
    try:
        status = MeasureStatus(result.get("status", "ok"))
        run_secs = tuple(float(s) for s in result.get("run_secs", ()))
        estimate = result.get("run_secs_estimate")
        workload_key, trace = body["workload_key"], body["trace"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MeasurerError(
            f"{where}: not a recorded candidate: {type(error).__name__} {error}"
        ) from error
    if not isinstance(trace, list):
        raise MeasurerError(f"{where}: trace must be a list of steps, got {type(trace).__name__}")
    if status is MeasureStatus.OK and not (run_secs and all(0 < s < 1e6 for s in run_secs)):
        raise MeasurerError(
            f"{where}: an ok candidate needs run_secs, each above 0; got {run_secs}"
        )
    ok = status is MeasureStatus.OK
    return Recorded(
        workload_key=str(workload_key),
        target_key=body.get("target_key"),
        trace=trace,
        result=MeasureResult(
            status=status,
            run_secs=run_secs if ok else (),
            run_secs_estimate=float(estimate or median(run_secs)) if ok else None,
            detail=str(result.get("detail", "")),
            run_secs_with_packing=_positive(result.get("run_secs_with_packing")),
            error_found=_positive(result.get("error_found")),
        ),
        confirmed=body.get("verified_level") == "full",
    )
