"""`explain`: the time that each choice of a schedule saves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.schedules.record import MeasureResult
from tilewright.schedules.target import Target
from tilewright.service import database
from tilewright.service.answers import stored
from tilewright.service.answers.grades import Answer
from tilewright.service.cli.options import Common, MachineOptions
from tilewright.service.cli.search_options import SecondsOption
from tilewright.service.cli.shared_options import LeastGrade
from tilewright.service.errors import VerificationFailed
from tilewright.service.grade import Grade
from tilewright.service.resolve import targets, workloads
from tilewright.service.resolve.spelling import WorkloadSpelling

if TYPE_CHECKING:
    from tilewright.schedules.workload.workload import Workload
    from tilewright.tuner.process.control import Control
    from tilewright.tuner.session.explanation import Explanation

# Start-up: a command loads what it needs when it runs.


def explain(
    spelling: WorkloadSpelling,
    *,
    record: Annotated[
        str | None,
        typer.Option(
            "--record", metavar="KEY", help="A stored record's schedule instead of the best."
        ),
    ] = None,
    min_grade: LeastGrade = None,
    seconds: SecondsOption = None,
    machine: MachineOptions = MachineOptions(),  # noqa: B008  # a frozen value
    common: Common = Common(),  # noqa: B008
) -> None:
    """Race the stored best without one of its choices at a time, and print what each one saves.

    Every variant is verified before it is timed. --min-grade default accepts the schedule chosen
    without measurement. The result is stored with the record.
    """
    from tilewright.service.cli.render_explanation import explanation_table
    from tilewright.service.cli.run_tune import print_wait
    from tilewright.service.jobs.tuning import check_measurable
    from tilewright.tuner.measure.measurer_spec import measured_target
    from tilewright.tuner.process.control import Control

    output = common.output()
    targets.check_measurer(machine.measurer)
    workload = workloads.read_workload(spelling)
    control = Control(print_wait)
    control.allow(seconds)
    target = measured_target(machine.measurer, machine.target, machine.threads, control)
    if record is None:
        answer = stored.answer(common.db, workload, target, str(min_grade or Grade.EXACT))
    else:
        answer = stored.answer_of_record(common.db, workload, target, record)
    check_measurable(target, machine.measurer)
    with output.busy("racing the schedule without one of its choices at a time"):
        found = explain_into(common.db, workload, target, answer, machine, control)
    output.result(found, lambda: explanation_table(found))


def explain_into(
    db: str | None,
    workload: Workload,
    target: Target,
    answer: Answer,
    machine: MachineOptions,
    control: Control,
) -> dict[str, Any]:
    """Explain the schedule of an answer, store the result with its record, and return the document
    of `explain --json`. Raise VerificationFailed if the schedule itself fails."""
    from tilewright.schedules.named_setting import NamedSetting
    from tilewright.schedules.sketches import space_for
    from tilewright.service.jobs.tuning import register
    from tilewright.tuner.measure.measurer_spec import parse_measurer
    from tilewright.tuner.process.control import Controllable
    from tilewright.tuner.session.explanation import explain_schedule
    from tilewright.tuner.session.options import SessionOptions

    measurer = parse_measurer(machine.measurer)(workload, target, machine.seed)
    if isinstance(measurer, Controllable):
        measurer.attach(control)
    with database.session(db) as store, measurer as opened:
        register(store, workload, target)
        record = store.record(answer.record_key) if answer.record_key else None
        named = None if record is None else record.setting
        found = explain_schedule(
            space_for(workload, target, control.check),
            answer.trace,
            None if named is None else NamedSetting.from_json(named),
            measurer=opened,
            sink=store,
            seed=machine.seed,
            options=SessionOptions(control=control),
        )
        if isinstance(found, MeasureResult):
            detail = f": {found.detail}" if found.detail else ""
            raise VerificationFailed(f"the schedule itself failed: {found.status}{detail}")
        document = _document(workload, target, answer, found, machine.measurer)
        if answer.record_key is not None:
            store.replace_explanation(answer.record_key, document)
    return document


def _document(
    workload: Workload, target: Target, answer: Answer, found: Explanation, measurer: str
) -> dict[str, Any]:
    bound = found.to_json()["bound"]
    return {
        "workload": workloads.workload_summary(workload),
        "target": targets.target_summary(target),
        "best": {
            "record_key": answer.record_key,
            "grade": answer.grade.value,
            "run_secs": found.run_secs,
            "gflops": workload.flops / found.run_secs / 1e9,
            "fraction_of_bound": found.fraction_of_bound,
            "bound": bound["binds"],
            "trace": answer.steps,
        },
        **found.to_json(),
        "mocked": targets.is_mocked(measurer),
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
