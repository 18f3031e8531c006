"""`best`: the stored answer. If possible, `fast_path` parses its arguments without Typer."""

from __future__ import annotations

from typing import Annotated

from tilewright.service.answers import stored
from tilewright.service.argument_specs import Option
from tilewright.service.cli.facts import answer_rows
from tilewright.service.cli.option_groups import Common, MachineOptions
from tilewright.service.grade import Grade
from tilewright.service.resolve import targets, workloads
from tilewright.service.resolve.spelling import WorkloadSpelling

MinGradeOption = Annotated[
    Grade,
    Option("--min-grade", help="The lowest acceptable grade."),
]


def best(
    spelling: WorkloadSpelling,
    *,
    min_grade: MinGradeOption = Grade.EXACT,
    machine: MachineOptions = MachineOptions(),  # noqa: B008  # a frozen value
    common: Common = Common(),  # noqa: B008
) -> None:
    """Print the stored answer, without measuring. Exit code 3 if there is none."""
    workload = workloads.read_workload(spelling)
    target = targets.read_target(machine.target, machine.threads, probe=False)
    answer = stored.answer(common.db, workload, target, min_grade.value)
    document = answer.to_json()
    common.output().facts(document, lambda: answer_rows(document))
