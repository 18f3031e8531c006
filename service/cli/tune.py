"""`tune`: the search. If possible, `fast_path` parses its arguments without Typer."""

from __future__ import annotations

from typing import Annotated

from tilewright.service.argument_specs import Option
from tilewright.service.cli.many_list import ManyOption, MoreWorkloads
from tilewright.service.cli.option_groups import Common, MachineOptions
from tilewright.service.cli.search_options import SecondsOption, StrategyOption
from tilewright.service.resolve.spelling import WorkloadSpelling
from tilewright.tuner.search.strategies import Strategy

# Start-up: a command loads what it needs when it runs.


def tune(
    spelling: WorkloadSpelling,
    *,
    more: MoreWorkloads = None,
    many: ManyOption = None,
    trials: Annotated[
        int,
        Option(
            "--trials",
            metavar="N",
            minimum=1,
            help="Candidates per workload, including those of earlier runs.",
        ),
    ] = 64,
    seconds: SecondsOption = None,
    strategy: StrategyOption = Strategy.ANNEALING,
    fresh: Annotated[
        bool, Option("--fresh", help="Ignore the measurements of earlier runs.")
    ] = False,
    machine: MachineOptions = MachineOptions(),  # noqa: B008  # a frozen value
    common: Common = Common(),  # noqa: B008
) -> None:
    """Search for the fastest schedule. Every trial is stored; the best is printed.

    The same command resumes an interrupted run and reuses its trials. Ctrl-C loses no finished
    trial. Of several workloads, the one with the greatest expected gain is tuned next;
    --seconds limits them together.
    """
    from tilewright.service.cli.run_tune import tune_with_progress
    from tilewright.service.jobs.options import TuneOptions
    from tilewright.tuner.session.report import Budget

    options = TuneOptions(
        budget=Budget(trials, seconds),
        strategy=strategy.value,
        seed=machine.seed,
        measurer=machine.measurer,
        fresh=fresh,
    )
    if many is None and not more:
        tune_with_progress(spelling, machine, common, options)
        return
    from tilewright.service.cli.run_tune_many import listed, tune_many_with_progress

    tune_many_with_progress(listed(spelling, more or [], many), machine, common, options)
