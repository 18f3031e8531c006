"""Builds a kernel that a lock file can pin: chooses a schedule for each CPU and compiles the
object.

The same request and records give the same bytes on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.full_checks import NONE_KNOWN, FullCheck, FullChecks
from tilewright.schedules.related import MAX_WORKLOADS
from tilewright.schedules.target import Probes, Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers import analytic, objects
from tilewright.service.answers.failed_checks import (
    UNMEASURED,
    record_refusal,
    refuse_pins,
    safe_trace,
    unverified_note,
    why_none_passed,
)
from tilewright.service.answers.find import find_answer
from tilewright.service.answers.grades import Answer, grade_of
from tilewright.service.build.lock_file import FileRef, LockedKernel, LockedVariant
from tilewright.service.errors import InvalidField, NoAnswer
from tilewright.service.grade import Grade
from tilewright.service.resolve import targets as target_names
from tilewright.service.resolve import workloads
from tilewright.service.resolve.requests import GradeName, StrictModel, located
from tilewright.service.resolve.toolchains import real_toolchain, toolchain
from tilewright.tuner.codegen.version import EMIT_VERSION
from tilewright.tuner.emit.variant import Variant
from tilewright.tuner.isa.x86 import essential
from tilewright.tuner.machine.x86_levels import BASELINE_LEVEL, LEVELS, level_target
from tilewright.tuner.process.frames import Frame

if TYPE_CHECKING:
    from tilewright.db import Store
    from tilewright.tuner.emit.emitted import EmittedKernel

# Start-up: choosing schedules needs no compiler.

MOST_TARGETS = 8


class BuildIn(StrictModel):
    """`POST /v1/builds`: one kernel for the listed CPUs, or with `every_cpu` for all CPUs."""

    name: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        description="The C function, and the stem of its files."
    )
    workload: Annotated[str, Field(min_length=1, max_length=65_536)] | dict[str, Any] = Field(
        description="Text such as `matmul:M=512,N=512,K=512`, a workload document, or "
        '`{"expr": ..., "tensors": {...}, "ranges": {...}}`.'
    )
    targets: Annotated[list[str | dict[str, Any]], Field(min_length=1, max_length=MOST_TARGETS)] = (
        Field(
            default=["native"],
            description="Each `native`, a level (`x86-64-v3`) or a target document.",
        )
    )
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    min_grade: GradeName = Field(
        default=Grade.EXACT, description="The lowest acceptable grade of a record."
    )
    every_cpu: bool = Field(
        default=False,
        description="Add a variant that every CPU of the architecture can run. For a target "
        "without an acceptable record, use a schedule chosen without measurement.",
    )
    records: list[str | None] | None = Field(
        default=None, description="The record of each target, to rebuild a pinned object."
    )
    traces: list[list[Any] | None] | None = Field(
        default=None,
        description="With `records`: the schedule of each target without a record, as in an "
        "answer; null to choose one.",
    )


@dataclass(frozen=True, slots=True)
class BuildVariant:
    """One variant of an object, and the answer that contains its schedule."""

    variant: Variant
    answer: Answer


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled kernel, the bytes of its files, and the descriptions of its targets by key."""

    kernel: LockedKernel
    files: tuple[objects.BuiltFile, ...]
    targets: dict[str, dict[str, Any]]


def build_kernel(store: Store | None, request: BuildIn) -> Built:
    """Choose schedules and compile them. `store` None is an empty database.

    Raise NoAnswer if no acceptable schedule is stored. Raise WorkloadError, TargetError,
    InvalidField or UsageProblem if the request is invalid, DeadlineError or CompileError if LLVM
    fails.
    """
    workload = workloads.workload_of(request.workload)
    symbol = objects.symbol_name(request.name, workload)
    named = [_target(request, number) for number in range(len(request.targets))]
    if request.records is not None and len(request.records) != len(named):
        raise InvalidField("records: must have one item per target", pointer="/records")
    traces = request.traces if request.traces is not None else [None] * len(named)
    if len(traces) != len(named):
        raise InvalidField("traces: must have one item per target", pointer="/traces")
    if request.records is not None:
        answers = [
            _pinned(store, workload, target, record_key, trace)
            for target, record_key, trace in zip(named, request.records, traces, strict=True)
        ]
        parts = _ordered(named, answers)
    else:
        minimum = Grade(request.min_grade)
        parts = choose_variants(store, workload, named, minimum, every_cpu=request.every_cpu)
    return _built(request, workload, symbol, parts)


def choose_variants(
    store: Store | None,
    workload: Workload,
    named: Sequence[Target],
    minimum: Grade,
    *,
    every_cpu: bool,
) -> list[BuildVariant]:
    """Return the best schedule for each target, in the order in which the object tests the CPU for
    them. With `every_cpu`, add a variant that all CPUs can run, and choose a schedule without
    measurement for each target without a record of grade `minimum`. Raise NoAnswer if there is no
    schedule, InvalidField if one object cannot have all targets."""
    named = list(named)
    answers = [_found(store, workload, target, minimum, every_cpu) for target in named]
    if every_cpu:
        for plain in baseline_targets(named):
            if plain.key not in {target.key for target in named}:
                answers.append(
                    _analytic(store, workload, plain, _checks(store, workload.key, plain.key))
                )
                named.append(plain)
    return _ordered(named, answers)


def _ordered(named: Sequence[Target], answers: Sequence[Answer]) -> list[BuildVariant]:
    by_key = {target.key: answer for target, answer in zip(named, answers, strict=True)}
    pairs = ((target, by_key[target.key]) for target in by_preference(named))
    return [BuildVariant(objects.variant_of(answer, target), answer) for target, answer in pairs]


def by_preference(named: Sequence[Target]) -> list[Target]:
    """Return the distinct targets in the order in which the object tests the CPU for them: wider
    vectors first, then CPUs before x86-64 levels, then in the given order."""

    def rank(target: Target) -> tuple[int, int]:
        level = LEVELS.index(target.cpu) if target.cpu in LEVELS else len(LEVELS)
        return -target.vector_bits, -level

    return sorted({target.key: target for target in named}.values(), key=rank)


def baseline_targets(named: Sequence[Target]) -> list[Target]:
    """Return the target that every x86-64 CPU can run; none for other architectures. Raise
    InvalidField if there are several architectures, or several targets that code cannot distinguish
    at run time."""
    triples = sorted({target.triple for target in named})
    if len(triples) > 1:
        raise InvalidField(
            f"targets: an object has only one architecture, got {', '.join(triples)}",
            pointer="/targets",
        )
    if triples[0].startswith("x86_64"):
        return [
            replace(level_target(BASELINE_LEVEL, max(t.threads for t in named)), triple=triples[0])
        ]
    if len({target.key for target in named}) > 1:
        raise InvalidField(
            f"targets: an object for {triples[0]} has only one CPU, because code cannot detect it",
            pointer="/targets",
        )
    return []


def _target(request: BuildIn, number: int) -> Target:

    spec = request.targets[number]
    if isinstance(spec, str) and spec not in ("native", *LEVELS):
        raise InvalidField(
            f"targets/{number}: must be 'native', {', '.join(LEVELS)} or a target document,"
            f" got {spec[:80]!r}",
            pointer=f"/targets/{number}",
        )
    target = located(f"/targets/{number}", lambda: target_names.target_of(spec, request.threads))
    return replace(target, probes=Probes())


def _found(
    store: Store | None, workload: Workload, target: Target, minimum: Grade, every_cpu: bool
) -> Answer:
    found, checks = None, NONE_KNOWN
    if store is not None:
        work = (workload.key, target.key)
        evidence = store.evidence([work], elsewhere=minimum is not Grade.EXACT)[work]
        found = find_answer(evidence, target, minimum, toolchain())
        checks = evidence.refusals(target.key)
    if found is not None:
        return found.answer(
            workloads.workload_summary(workload),
            target_names.target_summary(target),
            lambda: workload,
        )
    if every_cpu or minimum is Grade.DEFAULT:
        return _analytic(store, workload, target, checks)
    threads = "1 thread" if target.threads == 1 else f"{target.threads} threads"
    waiting = "" if store is None else _to_verify(store, workload.key, target.key)
    reason = waiting or why_none_passed(checks, toolchain())
    raise NoAnswer(
        f"no {minimum.value} answer stored for {workload.name or workload.key} on {target.cpu}"
        f" with {threads}" + (f": {reason}" if reason else ""),
        advice="Check it with this toolchain: tilewright verify WORKLOAD."
        if waiting
        else "Tune it: tilewright tune WORKLOAD; or accept a lower grade: --min-grade default.",
    )


def _pinned(
    store: Store | None,
    workload: Workload,
    target: Target,
    record_key: str | None,
    trace: list[Any] | None,
) -> Answer:
    """Return the schedule of the pinned record, or the given schedule, whatever is best now. Raise
    NoAnswer if the record is not stored, VerificationFailed if the schedule failed its full
    check."""
    if record_key is None:
        checks = _checks(store, workload.key, target.key)
        if trace is None:
            return _analytic(store, workload, target, checks)
        _refuse(workload, checks.refusal(trace, toolchain()))
        return _of_trace(workload, target, Trace.from_json(trace), UNMEASURED)
    record = store.record(record_key) if store is not None else None
    document = store.target(record.target_key) if store is not None and record else None
    if store is None or record is None or document is None or record.workload_key != workload.key:
        raise NoAnswer(
            f"record {record_key} is not stored here",
            advice="`tilewright lock --upgrade` pins records that are stored.",
        )
    _refuse(workload, record_refusal(store, record, target.key, toolchain()))
    made_for = Target.from_json(document)
    return Answer(
        grade=grade_of(made_for, target) or Grade.COMPATIBLE,
        workload=workloads.workload_summary(workload),
        target=target_names.target_summary(target),
        steps=record.trace,
        record_key=record_key,
        run_secs=record.result.run_secs_estimate,
    )


def _analytic(
    store: Store | None, workload: Workload, target: Target, checks: FullChecks
) -> Answer:
    """Return the schedule chosen now, without measuring the workload. Raise NoAnswer if `checks`
    exclude every schedule."""
    known = analytic.NOTHING_KNOWN
    if store is not None:
        related = store.related(workload, target, MAX_WORKLOADS)
        known = analytic.Knowledge(related, store.model(target))
    chosen = analytic.default_schedule(workload, target, known)
    return _of_trace(workload, target, *safe_trace(workload, chosen, checks, toolchain()))


def _of_trace(workload: Workload, target: Target, trace: Trace, note: str) -> Answer:
    return Answer(
        grade=Grade.DEFAULT,
        workload=workloads.workload_summary(workload),
        target=target_names.target_summary(target),
        steps=trace.to_json(),
        note=note,
    )


def _to_verify(store: Store, workload_key: str, target_key: str) -> str:
    best, claims = store.best(workload_key, target_key), store.claims(workload_key, target_key)
    return unverified_note(best, len(claims), toolchain())


def _refuse(workload: Workload, failed: FullCheck | None) -> None:
    if failed is not None:
        refuse_pins([(workload.name or workload.key, str(failed))])


def _checks(store: Store | None, workload_key: str, target_key: str) -> FullChecks:
    return NONE_KNOWN if store is None else store.full_checks(workload_key, target_key)


def _built(
    request: BuildIn, workload: Workload, symbol: str, parts: Sequence[BuildVariant]
) -> Built:
    files, uses_openmp = _compiled(workload, [part.variant for part in parts], symbol)
    by_kind = {file.kind: FileRef(file.sha256, len(file.data)) for file in files}
    return Built(
        kernel=LockedKernel(
            name=symbol,
            workload=_spelled(workload),
            workload_key=workload.key,
            threads=max(part.variant.target.threads for part in parts),
            min_grade=request.min_grade,
            variants=tuple(
                LockedVariant(
                    part.variant.label,
                    part.variant.target.key,
                    part.answer.grade.value,
                    part.answer.record_key,
                    part.answer.run_secs,
                    part.variant.trace.to_json() if part.answer.record_key is None else None,
                )
                for part in parts
            ),
            toolchain=_toolchain(),
            object=by_kind["object"],
            header=by_kind["header"],
            links=("openmp",) if uses_openmp else (),
        ),
        files=tuple(files),
        targets={part.variant.target.key: _description(part.variant.target) for part in parts},
    )


def _toolchain() -> dict[str, Any]:

    made_by = real_toolchain()
    return {
        "codegen": made_by.codegen_version,
        "emit": EMIT_VERSION,
        "llvmlite": made_by.llvmlite,
        "llvm": made_by.llvm,
    }


def _description(target: Target) -> dict[str, Any]:
    """Return the target's document without its probes, which are not part of its key."""
    document = target.to_json()
    del document["probes"]
    return document


def _spelled(workload: Workload) -> str | dict[str, Any]:
    """Return the workload's name if it defines the workload. Otherwise return the document."""
    try:
        if workload.name and workloads.workload_of(workload.name).key == workload.key:
            return workload.name
    except WorkloadError:
        pass
    return workload.to_json()


def _compiled(
    workload: Workload, variants: Sequence[Variant], symbol: str
) -> tuple[list[objects.BuiltFile], bool]:
    """Return the files, and whether they need OpenMP. A command (main thread) compiles in this
    process, the service (other threads) in a helper process."""
    import threading

    if threading.current_thread() is threading.main_thread():
        kernel, files = objects.emitted(workload, variants, symbol)
        return files, kernel.uses_openmp
    from tilewright.tuner.compiling.helper_process import shared_helper

    document = {
        "workload": workload.to_json(),
        "symbol": symbol,
        "variants": [
            {
                "label": variant.label,
                "trace": variant.trace.to_json(),
                "target": variant.target.to_json(),
                "record_key": variant.record_key,
            }
            for variant in variants
        ],
    }
    frame = shared_helper().call(
        "tilewright.service.build.kernels:compile_aside", document, "compiling a kernel"
    )
    files, start = [], 0
    for kind, name, size in frame.document["files"]:
        files.append(objects.BuiltFile(kind, name, frame.blob[start : start + size]))
        start += size
    return files, bool(frame.document["uses_openmp"])


def compile_aside(document: Mapping[str, Any]) -> Frame:
    """Compile the variants in `document`. A helper process runs this function for `_compiled`."""
    from tilewright.tuner.compiling.requests import build_checked

    workload = Workload.from_json(document["workload"])
    variants = [
        Variant(
            one["label"],
            Trace.from_json(one["trace"]),
            Target.from_json(one["target"]),
            one["record_key"],
        )
        for one in document["variants"]
    ]
    kernel, files = objects.emitted(workload, variants, document["symbol"], build_checked)
    return Frame(
        {
            "files": [[file.kind, file.name, len(file.data)] for file in files],
            "uses_openmp": kernel.uses_openmp,
        },
        b"".join(file.data for file in files),
    )


def variant_documents(kernel: EmittedKernel, parts: Sequence[BuildVariant]) -> list[dict[str, Any]]:
    """Return the `variants` of `emit --json`, in the order of the tests of the CPU."""
    return [
        {
            "cpu": part.variant.label,
            "target_key": part.variant.target.key,
            "grade": part.answer.grade.value,
            "record_key": part.answer.record_key,
            "run_secs": part.answer.run_secs,
            "needs": list(essential(variant.needs)),
        }
        for variant, part in zip(kernel.variants, parts, strict=True)
    ]
