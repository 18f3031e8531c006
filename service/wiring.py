"""Where the service meets the storeys below: workloads, targets, answers, machine.

Everything is imported when it is used, so that a query does not load what tuning needs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import database
from .errors import NoAnswer, UsageProblem
from .notation_request import read_notation
from .python_file import call_function
from .submission import Spelling, check_one_spelling, read_text

if TYPE_CHECKING:
    from schedules.record import MeasureResult, Toolchain
    from schedules.target import Target
    from schedules.trace import Trace
    from schedules.workload import Workload

    from .answer import Answer, Grade
    from .answers import Found

# Workloads


def read_workload(spelling: Spelling) -> Workload:
    """The workload as typed, in normal form. WorkloadError, UsageProblem."""
    from schedules.spelling import parse_workload

    check_one_spelling(spelling)
    return parse_workload(
        spelling.workload or "",
        expr=spelling.expr,
        tensors=spelling.tensor or [],
        ranges=spelling.range or [],
        constants=spelling.constant or [],
        allow_error=spelling.allow_error,
        read_file=_read_file,
        load_function=call_function,
    )


def workload_of(spelled: str | dict[str, Any]) -> Workload:
    """The workload of a request's `workload` field; no file is read. WorkloadError."""
    from schedules.spelling import parse_workload
    from schedules.workload_json import from_json

    if isinstance(spelled, str):
        return parse_workload(spelled)
    if "expr" not in spelled:
        return from_json(spelled)
    notation = read_notation(spelled)
    return parse_workload(
        expr=notation.expr,
        tensors=list(notation.tensors),
        ranges=list(notation.ranges),
        allow_error=notation.allow_error,
    )


def workload_document(workload: Workload) -> dict[str, Any]:
    """Its canonical JSON document."""
    from schedules.workload_json import to_json

    return to_json(workload)


def workload_summary(workload: Workload) -> dict[str, Any]:
    """What answers say of a workload."""
    return {
        "key": workload.key,
        "name": workload.name,
        "flops": workload.flops,
        "min_bytes": workload.min_bytes,
    }


def flops_of(workload: Workload) -> float:
    return float(workload.flops)


def parse_json(text: bytes, *, max_bytes: int, max_values: int) -> Any:
    """Strict JSON: no duplicate keys, NaN or deep nesting. WorkloadError says where."""
    from schedules.strict_json import parse_json_text

    return parse_json_text(text, max_bytes=max_bytes, max_values=max_values)


def _read_file(name: str) -> bytes:
    return read_text(Path(name)).encode()


def operator_documents(name: str | None) -> list[dict[str, Any]]:
    """The operator library, or the one operator asked for. WorkloadError if it is not in it."""
    from schedules.operators import OPERATORS, operator

    chosen = OPERATORS.values() if name is None else [operator(name)]
    return [
        {
            "name": op.name,
            "summary": op.summary,
            "layout": op.layout,
            "flops": op.flops,
            "dtypes": list(op.dtypes),
            "epilogues": op.epilogues,
            "parameters": [
                {
                    "name": param.name,
                    "default": param.default,
                    "minimum": param.minimum,
                    "per_axis": list(param.per_axis),
                    "doc": param.doc,
                }
                for param in op.params
            ],
        }
        for op in chosen
    ]


# Targets and timings


def read_target(
    spec: str, threads: int | None, *, probe: bool = True, fresh: bool = False
) -> Target:
    """The target a user names. Without `probe` nothing is measured. TargetError."""
    from tuner.native_target import load_target, native_target

    if spec == "native" and fresh:
        return native_target(threads or 1, probe=probe, fresh=True)
    if spec == "native":
        return load_target(spec, threads, probe=probe)
    # Checked as the file has it, since `threads` would hide what else is wrong with it.
    target = load_target(spec, None, probe=probe)
    return target if threads is None else target.with_threads(threads)


def target_of(spec: str | dict[str, Any], threads: int | None) -> Target:
    """The target of a request's `target` field, not probed. TargetError."""
    from schedules.target import Target
    from tuner.native_target import native_target

    if isinstance(spec, str):
        return native_target(threads or 1, probe=False)
    target = Target.from_json(spec)
    return target if threads is None else target.with_threads(threads)


def check_fits(workload: Workload) -> None:
    """WorkloadError "too_large" if its tensors need more than half of this machine's memory."""
    import psutil

    from schedules.limits import check_limits

    check_limits(workload, max_bytes=psutil.virtual_memory().total // 2)


def check_measurable(target: Target, measurer: str) -> None:
    """TargetError if `measurer` would have to run code here that this machine cannot run."""
    from schedules.errors import TargetError
    from tuner.native_target import native_target

    from .answer import grade_of

    if measurer != "local":
        return
    host = native_target(probe=False)
    if grade_of(target, host) is None:
        missing = sorted(set(target.features) - set(host.features))
        alike = target.triple == host.triple and missing
        reason = f"it lacks {', '.join(missing[:5])}" if alike else f"it is {host.triple}"
        raise TargetError(
            f"kernels for {target.cpu} ({target.triple}) cannot be timed on this machine"
            f" ({host.cpu}): {reason}"
        )


def check_measurer(spec: str) -> None:
    """MeasurerError if the file of timings that `spec` names cannot be used."""
    from tuner.measure.choose import parse_measurer

    parse_measurer(spec)


def target_summary(target: Target) -> dict[str, Any]:
    """What answers say of a target."""
    return {
        "key": target.key,
        "cpu": target.cpu,
        "threads": target.threads,
        "triple": target.triple,
        "vector_bits": target.vector_bits,
    }


# Answers


def toolchain() -> Toolchain:
    """The toolchain installed here, without loading LLVM; `llvm` is "" (llvmlite fixes it)."""
    from importlib.metadata import PackageNotFoundError, version

    from schedules.record import Toolchain
    from tuner.codegen.version import CODEGEN_VERSION

    try:
        llvmlite = version("llvmlite")
    except PackageNotFoundError:
        llvmlite = ""
    return Toolchain(codegen_version=CODEGEN_VERSION, llvmlite=llvmlite, llvm="")


def real_toolchain() -> Toolchain:
    """The toolchain installed here in full, as records name it. Loads LLVM."""
    from tuner.measure.local import local_toolchain

    return local_toolchain()


def default_trace(workload: Workload, target: Target, secs: float | None = None) -> Trace:
    """The schedule chosen without measurement. DeadlineError after `secs`, None for the deadline of
    every default.

    A command works on it itself; a thread of a service, which answers others meanwhile, hands it
    to a helper process.
    """
    import threading

    from tuner.default import default_trace as choose_default
    from tuner.measure.aside import DEADLINE_SECS, alarm, shared

    what = "choosing a schedule without measurement"
    if threading.current_thread() is threading.main_thread():
        with alarm(DEADLINE_SECS if secs is None else secs, what):
            return choose_default(workload, target)
    from schedules.trace import Trace

    document = {"workload": workload.to_json(), "target": target.to_json()}
    frame = shared().call("tuner.measure.aside:choose_default", document, what, secs)
    return Trace.from_json(frame.document["trace"])


def answer(
    db: str | None,
    workload: Workload,
    target: Target,
    min_grade: str,
    *,
    any_toolchain: bool = False,
) -> Answer:
    """The best answer of at least `min_grade` in the database `--db` names. NoAnswer if none.

    With `any_toolchain` a record made by another code generator counts as if made by this one:
    for `verify`, which rebuilds it.
    """
    from db.quick import artefacts_of_record

    from .answer import Answer, Grade
    from .artefact_links import links

    minimum = Grade(min_grade)
    found = _stored_answer(db, workload, target, minimum, None if any_toolchain else toolchain())
    if found is not None:
        summary = workload_summary(workload)
        answer = found.answer(summary, target_summary(target), lambda: workload)
        files = artefacts_of_record(database.database_url(db), found.stored.record.key)
        return replace(answer, artefacts=links(files))
    if minimum is not Grade.DEFAULT:
        threads = "1 thread" if target.threads == 1 else f"{target.threads} threads"
        raise NoAnswer(
            f"no {minimum.value} answer stored for {workload.name or workload.key}"
            f" on {target.cpu} with {threads}",
            advice="Tune it first: tilewright tune WORKLOAD; or accept less: --min-grade default.",
        )
    return Answer(
        grade=Grade.DEFAULT,
        workload=workload_summary(workload),
        target=target_summary(target),
        trace=default_trace(workload, target),
        note="chosen without measurement",
    )


def recorded(db: str | None, workload: Workload, target: Target, key: str) -> Answer:
    """The schedule of record `key`, whatever machine it was measured on. NoAnswer, UsageProblem."""
    from schedules.target import Target as Description
    from schedules.trace import Trace

    from .answer import Answer, Grade, grade_of

    name = "sha256:" + key.removeprefix("sha256:")
    with database.session(db) as store:
        record = store.record(name)
        document = store.target(record.target_key) if record is not None else None
    if record is None or document is None:
        raise NoAnswer(f"no record {name} stored", advice="`tilewright export` lists the records.")
    if record.workload_key != workload.key:
        raise UsageProblem(f"record {name} is of another workload ({record.workload_key})")
    made_for = Description.from_json(document)
    return Answer(
        grade=grade_of(made_for, target) or Grade.DEFAULT,
        workload=workload_summary(workload),
        target=target_summary(target),
        trace=Trace.from_json(record.trace),
        record_key=name,
        run_secs=record.result.run_secs_estimate if made_for.key == target.key else None,
        note=f"the schedule of {name}, made for {made_for.cpu}",
        made_for=target_summary(made_for),
        created_at=record.created_at or None,
    )


def _stored_answer(
    db: str | None,
    workload: Workload,
    target: Target,
    minimum: Grade,
    made_by: Toolchain | None,
) -> Found | None:
    """An exact answer is found without SQLAlchemy, whose import takes longer than all the rest."""
    from db.errors import StoreMissing
    from db.quick import best_record

    from .answer import Grade, Stored, choose
    from .answers import Found, find_answer

    url = database.database_url(db)
    try:
        record = best_record(url, workload.key, target.key)
    except StoreMissing:
        return None
    if record is not None:
        chosen = choose([Stored(record, target)], target, made_by, Grade.EXACT)
        if chosen is not None:
            return Found(*chosen)
    if minimum is Grade.EXACT:
        return None
    from db import open_store

    with open_store(url, create=False, upgrade=False) as store:
        return find_answer(store, workload.key, target, minimum, made_by, exact=record)


# The machine


def peer_names(text: str) -> list[str]:
    """`numpy,torch` as a list; UsageProblem for another name."""
    known = ("numpy", "torch", "default")
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in known:
            raise UsageProblem(f"--against {name}: {', '.join(known)} will do")
    return names


def bench(
    workload: Workload,
    found: Answer,
    target: Target,
    *,
    peers: list[str],
    seconds: float,
    seed: int,
    bytes_behind_line: int = 0,
) -> dict[str, Any]:
    """Time the kernel beside its peers; the document `bench --json` prints."""
    from tuner.measure.bench import bench as run_bench

    result: dict[str, Any] = run_bench(
        workload,
        found.trace,
        target,
        against=peers,
        seconds=seconds,
        seed=seed,
        bytes_behind_line=bytes_behind_line,
    ).to_json()
    return result


def verify(workload: Workload, found: Answer, target: Target, seed: int) -> MeasureResult:
    """Rebuild in a fresh process and check in full."""
    from tuner.measure.local import verify_full

    return verify_full(workload, found.trace, target, seed=seed)
