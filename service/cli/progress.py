"""Progress of a run: a bar on a terminal, plain lines elsewhere, nothing with `--json`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from service.cli.output import Output
from service.cli.render import best_text, clock, trial_line

OnEvent = Callable[[dict[str, Any]], None]
PLAIN_EVERY_SECS = 2.0


@contextmanager
def trial_reporter(output: Output, flops: float, trials: int) -> Iterator[OnEvent]:
    """A function to call with every trial event (as JSON data)."""
    if output.as_json:
        yield lambda _event: None
    elif output.live:
        with _bar(output, flops, trials) as on_event:
            yield on_event
    else:
        yield _plain(flops)


def _plain(flops: float) -> OnEvent:
    """Lines for logs: how many trials were reused, the first that is measured, every new best, else
    one each `PLAIN_EVERY_SECS`."""
    last_secs = -PLAIN_EVERY_SECS
    reused = 0

    def on_event(event: dict[str, Any]) -> None:
        nonlocal last_secs, reused
        finished = event["trial"] >= event["of_trials"]
        if event["reused"]:
            reused += 1
            if not finished:
                return
        if reused:
            sys.stderr.write(f"{reused} trials reused from earlier runs\n")
            reused = 0
        if event["is_best"] or finished or event["wall_secs"] - last_secs >= PLAIN_EVERY_SECS:
            last_secs = event["wall_secs"]
            sys.stderr.write(trial_line(event, flops) + "\n")
            sys.stderr.flush()

    return on_event


@contextmanager
def _bar(output: Output, flops: float, trials: int) -> Iterator[OnEvent]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[best]}"),
        TextColumn("{task.fields[reused]}"),
        TextColumn("{task.fields[failed]}"),
        TextColumn("[dim]ETA {task.fields[eta]}"),
    )
    failures = reused = 0
    with Progress(*columns, console=output.notes(), transient=True) as progress:
        task = progress.add_task(
            "tuning", total=trials, best="first candidates ...", reused="", failed="", eta="-:--"
        )

        def on_event(event: dict[str, Any]) -> None:
            nonlocal failures, reused
            reused += event["reused"]
            failures += event["result"]["status"] != "ok"
            progress.update(
                task,
                description="tuning" if event["trial"] < event["of_trials"] else "verifying",
                completed=event["trial"],
                total=event["of_trials"],
                best=f"[green]best {best_text(event, flops)}",
                reused=f"{reused} reused" if reused else "",
                failed=f"[red]{failures} failed" if failures else "",
                eta=clock(event["eta_secs"]),
            )

        yield on_event
