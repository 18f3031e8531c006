"""`submit`, `status`, `watch`, `cancel`: jobs on a running service."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.service import timeouts
from tilewright.service.cli.many_list import ManyOption, MoreWorkloads
from tilewright.service.cli.options import Common, MachineOptions, Service, command
from tilewright.service.cli.output import Output
from tilewright.service.cli.payloads import many_payload, target_payload, workload_payload
from tilewright.service.cli.progress import trial_reporter
from tilewright.service.cli.search_options import SecondsOption, StrategyOption
from tilewright.service.errors import ExitCode
from tilewright.service.resolve.spelling import WorkloadSpelling
from tilewright.service.resolve.targets import is_mocked
from tilewright.tuner.process.control import Activity
from tilewright.tuner.search.strategies import Strategy

if TYPE_CHECKING:
    from tilewright.service.client import Client, Job

# Start-up: a command loads what it needs when it runs.


JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]


def add_commands(app: typer.Typer) -> None:
    @command(app, "submit")
    def submit(
        spelling: WorkloadSpelling,
        *,
        more: MoreWorkloads = None,
        many: ManyOption = None,
        trials: Annotated[
            int | None,
            typer.Option(
                "--trials", metavar="N", min=1, help="Candidates to measure, for each workload."
            ),
        ] = None,
        seconds: SecondsOption = None,
        strategy: StrategyOption = Strategy.ANNEALING,
        wait: Annotated[bool, typer.Option("--wait", help="Follow the job to its end.")] = False,
        service: Service = Service(),  # noqa: B008  # a frozen value
        machine: MachineOptions = MachineOptions(),  # noqa: B008
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Submit a workload for tuning to a service. With --wait, follow the job and print its
        result. Several workloads are one job, as for `tune`."""
        output = common.output()
        is_one = many is None and not more
        with _client(service) as client:
            job = client.submit(
                workload_payload(spelling) if is_one else many_payload(spelling, more or [], many),
                target=target_payload(machine.target),
                threads=machine.threads,
                trials=trials,
                seconds=seconds,
                strategy=strategy.value,
                seed=machine.seed,
                measurer=machine.measurer,
            )
            if wait:
                job = _follow(client, job, output)
        _print_job(job, output)
        if not job.done:
            output.remark(f"follow it with: tilewright watch {job.id}")
        _leave(job)

    @command(app, "status")
    def status(
        job_id: Annotated[
            str | None, typer.Argument(metavar="[JOB]", help="A job's id; by default, all jobs.")
        ] = None,
        service: Service = Service(),  # noqa: B008
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Show one job, or the newest jobs."""
        from itertools import islice

        from tilewright.service.cli.render import jobs_table

        output = common.output()
        with _client(service) as client:
            if job_id is not None:
                _print_job(client.status(job_id), output)
                return
            documents = [job.document for job in islice(client.jobs(page_size=50), 50)]
        if not documents:
            output.remark("no jobs yet")
        output.result({"jobs": documents}, jobs_table(documents) if documents else None)

    @command(app, "watch")
    def watch(
        job_id: JobArgument,
        service: Service = Service(),  # noqa: B008
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Follow a job to its end. Ctrl-C ends only this command, not the job."""
        output = common.output()
        with _client(service) as client:
            job = _follow(client, client.status(job_id), output)
        _print_job(job, output)
        _leave(job)

    @command(app, "cancel")
    def cancel(
        job_id: JobArgument,
        service: Service = Service(),  # noqa: B008
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Stop a job; its results are kept. If the job has other owners, it continues for them."""
        output = common.output()
        with _client(service) as client:
            job = client.cancel(job_id)
        _print_job(job, output)
        others = (job.sharing or {}).get("owners", 0)
        if not job.done and (job.sharing or {}).get("withdrawn"):
            output.remark(
                f"you are no longer an owner; it continues for {others} other"
                f" {'owner' if others == 1 else 'owners'}"
            )


def _client(service: Service) -> Client:
    from tilewright.service.client import Client

    # A user waits at the terminal, so the time limit is shorter than for a program.
    return Client(service.url, service.api_key, timeout_secs=timeouts.TERMINAL_CALL_SECS)


def _follow(client: Client, job: Job, output: Output) -> Job:
    """Show the job's trials as they arrive, and return the finished job. After Ctrl-C the job
    continues."""
    follow = _follow_tasks if _is_many(job) else _follow_trials
    try:
        follow(client, job, output)
        return client.wait(job.id)
    except KeyboardInterrupt:
        sys.stderr.write(
            f"\ntilewright: the job continues; follow it with: tilewright watch {job.id}\n"
        )
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _follow_trials(client: Client, job: Job, output: Output) -> None:
    trials = int(job.progress.get("trials", 0))
    with trial_reporter(output, float(job.workload.get("flops") or 0), trials) as reporter:
        for event in client.events(job.id):
            if event.kind == "trial":
                reporter.on_event(event.data)
            elif event.kind == "activity":
                reporter.on_activity(Activity(**event.data))


def _follow_tasks(client: Client, job: Job, output: Output) -> None:
    from tilewright.service.cli.follow_many import many_follower

    with many_follower(client, job.document, output, time.monotonic) as follower:
        for event in client.events(job.id):
            follower.on_event(event)


def _is_many(job: Job) -> bool:
    return "tasks" in (job.document.get("request") or {})


def _print_job(job: Job, output: Output) -> None:
    from tilewright.service.cli.render import facts, job_facts, many_summary, tune_summary

    result: dict[str, Any] | None = job.document.get("result")
    if result and job.done and not output.as_json:
        output.result(None, facts([("job", f"{job.id}  {job.state}")]))
        mocked = is_mocked(job.document.get("request", {}).get("measurer", "local"))
        if _is_many(job):
            output.result(result, many_summary(result, mocked=mocked))
            for name, why in ((job.error or {}).get("tasks") or {}).items():
                output.remark(f"tilewright: {name}: {why}")
            return
        output.result(result, tune_summary(result, again=None, mocked=mocked))
        return
    output.result(job.document, job_facts(job.document))
    if _is_many(job) and not output.as_json:
        from tilewright.service.cli.follow_many import tasks_table

        output.result(None, tasks_table(job.document))


def _leave(job: Job) -> None:
    """Exit with code 1 if the job ended without success."""
    if job.done and job.state != "SUCCEEDED":
        raise typer.Exit(ExitCode.FAILED)
