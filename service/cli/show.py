"""`show` and `emit`: the chosen schedule as text, and as files for a C program."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tilewright.service.answers import stored
from tilewright.service.cli.facts import evidence_rows
from tilewright.service.cli.options import Common, MachineOptions, command
from tilewright.service.cli.shared_options import CpusOption, LeastGrade, split_names
from tilewright.service.database import open_existing
from tilewright.service.grade import Grade
from tilewright.service.resolve import targets, workloads
from tilewright.service.resolve.spelling import WorkloadSpelling

# Start-up: a command loads what it needs when it runs.


class What(StrEnum):
    """Representations in which `show` prints a schedule."""

    TRACE = "trace"
    PLAN = "plan"
    NEST = "nest"
    BEFORE_AFTER = "before-after"
    LLVM = "llvm"
    ASM = "asm"


def add_commands(app: typer.Typer) -> None:
    @command(app, "show")
    def show(
        spelling: WorkloadSpelling,
        *,
        what: Annotated[What, typer.Option("--what", help="What to print.")] = What.TRACE,
        record: Annotated[
            str | None,
            typer.Option(
                "--record", metavar="KEY", help="The schedule of this record, instead of the best."
            ),
        ] = None,
        machine: MachineOptions = MachineOptions(),  # noqa: B008  # a frozen value
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Print the chosen schedule as a trace, in sentences, as loops, as LLVM IR or as assembly.

        This is the stored best or, if there is none, the schedule chosen without measurement. With
        --record and --target, it is the schedule of any record on any machine.
        """
        from tilewright.service.answers import objects

        output = common.output()
        workload = workloads.read_workload(spelling)
        target = targets.read_target(machine.target, machine.threads, probe=False)
        if record is None:
            answer = stored.answer(common.db, workload, target, "default")
        else:
            answer = stored.answer_of_record(common.db, workload, target, record)
        text = objects.shown(workload, answer.trace, target, what.value)
        output.remark(f"# {answer.summary()}")
        for name, value in evidence_rows(answer.to_json()):
            output.remark(f"# {name}: {value}")
        output.text({**answer.to_json(), "what": what.value, "text": text}, text)

    @command(app, "emit")
    def emit(
        spelling: WorkloadSpelling,
        *,
        folder: Annotated[
            Path,
            typer.Option("--output", "-o", metavar="DIR", help="The folder for the files."),
        ],
        name: Annotated[
            str | None,
            typer.Option(
                "--name",
                metavar="NAME",
                help="The C function; by default named after the operator.",
            ),
        ] = None,
        ll: Annotated[bool, typer.Option("--ll", help="Also write NAME.ll: LLVM IR.")] = False,
        asm: Annotated[bool, typer.Option("--asm", help="Also write NAME.s: assembly.")] = False,
        cpus: CpusOption = None,
        min_grade: LeastGrade = None,
        machine: MachineOptions = MachineOptions(),  # noqa: B008
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Write NAME.o and NAME.h: the best kernel, ready to link with -fopenmp.

        With --cpu, write one object for many CPUs. It selects a kernel when it first runs. The same
        records give the same bytes on every machine.
        """
        from tilewright.service.answers import objects
        from tilewright.service.cli.render import emitted_facts

        workload = workloads.read_workload(spelling)
        symbol = objects.symbol_name(name, workload)
        if cpus is None:
            target = targets.read_target(machine.target, machine.threads, probe=False)
            answer = stored.answer(common.db, workload, target, str(min_grade or Grade.EXACT))
            variant = objects.variant_of(answer, target)
            files = objects.build(workload, variant, symbol, ll=ll, asm=asm)
            document = {**answer.to_json(), "files": objects.write(files, folder)}
            common.output().result(document, emitted_facts(document))
            return
        from tilewright.service.build.kernels import choose_variants, variant_documents

        named = [
            targets.read_target(cpu, machine.threads, probe=False) for cpu in split_names(cpus)
        ]
        minimum = Grade(str(min_grade or Grade.SAME_CPU))
        with open_existing(common.db) as store:
            parts = choose_variants(store, workload, named, minimum, every_cpu=True)
        variants = [part.variant for part in parts]
        kernel, files = objects.emitted(workload, variants, symbol)
        for variant in variants:
            stem = f"{symbol}.{variant.label}"
            files += objects.texts(workload, variant, stem, ll=ll, asm=asm)
        document = {
            "workload": parts[0].answer.workload,
            "variants": variant_documents(kernel, parts),
            "files": objects.write(files, folder),
        }
        common.output().result(document, emitted_facts(document))
