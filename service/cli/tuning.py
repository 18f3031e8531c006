"""`tune`, `best`, `bench`, `explain`, `verify`: search, look up, compare, explain, check."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tilewright.service.answers import stored
from tilewright.service.cli import bench as benchmark
from tilewright.service.cli import best as best_command
from tilewright.service.cli import explain as explain_command
from tilewright.service.cli import tune as tune_command
from tilewright.service.cli.options import Common, MachineOptions, command
from tilewright.service.cli.verify_all import verify_everything
from tilewright.service.errors import NoAnswer, UsageProblem, VerificationFailed
from tilewright.service.resolve import targets, workloads
from tilewright.service.resolve.spelling import WorkloadSpelling

# Start-up: a command loads what it needs when it runs.


def add_commands(app: typer.Typer) -> None:
    command(app, "tune")(tune_command.tune)
    command(app, "best")(best_command.best)

    @command(app, "bench")
    def bench(
        spelling: WorkloadSpelling,
        *,
        against: Annotated[
            str,
            typer.Option("--against", metavar="LIST", help="Peers: numpy, torch, default."),
        ] = "numpy,default",
        seconds: Annotated[
            float, typer.Option("--seconds", metavar="S", min=0.0, help="Time for all timings.")
        ] = 5.0,
        alignment: Annotated[
            int,
            typer.Option(
                "--alignment",
                metavar="BYTES",
                min=1,
                max=64,
                help="Also time arrays at this offset in a cache line; NumPy's is 16.",
            ),
        ] = 64,
        compile_secs: Annotated[
            float,
            typer.Option(
                "--compile-secs",
                metavar="S",
                min=0.0,
                help="Time limit for torch.compile as a peer; 0 omits it.",
            ),
        ] = 60.0,
        machine: MachineOptions = MachineOptions(),  # noqa: B008
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Time the best kernel and the peers, in alternation on this machine."""
        from tilewright.service.cli.render import bench_table

        peers = benchmark.peer_names(against)
        workload = workloads.read_workload(spelling)
        target = targets.read_target(machine.target, machine.threads)
        answer = stored.answer(common.db, workload, target, "exact")
        document = benchmark.bench(
            workload,
            answer,
            target,
            peers=peers,
            seconds=seconds,
            seed=machine.seed,
            bytes_behind_line=alignment % 64,
            compile_secs=compile_secs,
        )
        common.output().result(document, bench_table(document, workloads.flops_of(workload)))

    command(app, "explain")(explain_command.explain)

    @command(app, "verify")
    def verify(
        spelling: WorkloadSpelling,
        *,
        everything: Annotated[
            bool,
            typer.Option(
                "--all",
                help="Instead of one WORKLOAD, verify all unverified records of this machine.",
            ),
        ] = False,
        machine: MachineOptions = MachineOptions(),  # noqa: B008
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Rebuild the stored best in a fresh process and check it. The exit code is 6 if it fails.

        A best with wrong results is withdrawn. If there is no best, the fastest imported record is
        checked, and becomes best if it passes. --all checks imported records, and every best of
        another version of Tilewright or LLVM; after an interruption the same command continues.
        """
        from tilewright.service.answers.verification import verify_stored
        from tilewright.service.cli.render import verified_facts

        if everything:
            if spelling != WorkloadSpelling():
                raise UsageProblem("verify --all has no WORKLOAD: it checks all unverified records")
            return verify_everything(machine, common)

        workload = workloads.read_workload(spelling)
        target = targets.read_target(machine.target, machine.threads, probe=False)
        try:
            answer = stored.answer(common.db, workload, target, "exact", any_toolchain=True)
        except NoAnswer:
            claim = stored.answer_of_claim(common.db, workload, target)
            if claim is None:
                raise
            answer = claim
        assert answer.record_key is not None
        verification = verify_stored(
            common.db, workload, target, answer.record_key, answer.trace, machine.seed
        )
        if not verification.result.ok:
            raise VerificationFailed(
                f"{answer.record_key}: {verification.result.status}"
                + (f": {verification.result.detail}" if verification.result.detail else "")
                + ("; it is withdrawn" if verification.withdrawn else "")
            )
        document = verification.to_json()
        if verification.warning:
            sys.stderr.write(f"tilewright: {verification.warning}\n")
        common.output().result(document, verified_facts(document))
