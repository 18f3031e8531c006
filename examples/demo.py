"""Tune a 512 x 512 matrix multiplication and show what came of it: what `make demo` runs.

Every step is a command anyone can type, and is printed before it runs. What is found goes to the
user's own database (`TILEWRIGHT_DB` names another), so the commands at the end work, and a second
run has nothing left to measure. `--fresh` measures everything again.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

WORKLOAD = "matmul:M=512,N=512,K=512"
PEERS = {"numpy": "NumPy", "default": "default"}
NEST_LINES = 40
TAIL_LOOP = re.compile(r" *for [\w.]+\.t in ")
"""A loop over what a split leaves over: its name ends in `.t`."""

Document = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration; the exit code of the first command that failed, else 0."""
    options = _options(arguments)
    console = Console(highlight=False)
    _introduce(console, options.workload)
    tune = ["tune", options.workload, "--trials", str(options.trials)]
    code = _show(console, [*tune, "--fresh"] if options.fresh else tune)
    if code:
        return code
    console.print()
    seconds = f"{options.seconds:g}"
    bench = ["bench", options.workload, "--against", ",".join(PEERS), "--seconds", seconds]
    times = _ask(console, bench)
    best = _ask(console, ["best", options.workload])
    target = _ask(console, ["target"])
    console.print()
    console.print(before_after(times, best, target))
    console.print()
    nest = _ask(console, ["show", options.workload, "--what", "nest"])
    _print_nest(console, str(nest["text"]))
    _say_what_next(console, options.workload)
    return 0


def before_after(times: Document, best: Document, target: Document) -> Table:
    """NumPy, the default schedule and the tuned one, from `bench`, `best` and `target`."""
    flops = float(best["workload"]["flops"])
    peak = float(target["probes"]["peak_gflops"]["f32"][0])
    numpy_secs = times["against"]["numpy"]["run_secs"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.title = f"{best['workload']['name']} on one core of {target['cpu']}"
    table.caption = (
        f"peak: {peak:.0f} GFLOP/s, multiply-adds in registers, probed on this core\n"
        "default: the schedule Tilewright takes without one measurement"
    )
    table.caption_justify = "left"
    table.add_column("")
    for name in ("time", "GFLOP/s", "of peak", "vs NumPy"):
        table.add_column(name, justify="right")
    for name in ("verified", "stored"):
        table.add_column(name, justify="center")
    for peer, title in PEERS.items():
        secs = times["against"][peer]["run_secs"]
        table.add_row(title, *_figures(secs, flops, peak, numpy_secs), "", "")
    figures = _figures(times["kernel"]["run_secs"], flops, peak, numpy_secs)
    verified = "yes" if best["verified"] else "no"
    stored = str(best["record_key"]).removeprefix("sha256:")[:12]
    table.add_row("Tilewright", *figures, verified, stored, style="bold green")
    return table


def _figures(secs: float | None, flops: float, peak: float, numpy_secs: float | None) -> list[str]:
    if secs is None:
        return ["-"] * 4
    rate = flops / secs / 1e9
    faster = f"{numpy_secs / secs:.2f}x" if numpy_secs else "-"
    return [f"{secs * 1e3:.3f} ms", f"{rate:.1f}", f"{100 * rate / peak:.0f} %", faster]


def _introduce(console: Console, workload: str) -> None:
    console.print(workload, style="bold")
    console.print(
        "Tilewright writes schedules for it, compiles each with LLVM, runs it on one\n"
        "core, checks the result against NumPy in exact arithmetic, times it, and\n"
        "stores it. The first run also probes this machine, for two seconds.\n"
    )


def _print_nest(console: Console, nest: str) -> None:
    lines = nest.splitlines()
    whole = next((i for i, line in enumerate(lines) if TAIL_LOOP.match(line)), len(lines))
    shown = lines[: min(whole, NEST_LINES)]
    console.print("\nThe loops that do it (Tilewright's own notation):", style="bold")
    if console.is_terminal:
        code = Syntax("", "python", background_color="default").highlight("\n".join(shown))
        code.rstrip()
        console.print(code, soft_wrap=True)
    else:
        console.print("\n".join(shown), soft_wrap=True, markup=False)
    if len(lines) > len(shown):
        rest = len(lines) - len(shown)
        console.print(f"... and {rest} lines more, for what fills no whole tile", style="dim")


def _say_what_next(console: Console, workload: str) -> None:
    program = _program_to_type()
    console.print("\nNow try:", style="bold")
    for does, command in (
        ("the stored answer", f"{program} best {workload}"),
        ("what the core runs", f"{program} show {workload} --what asm"),
        ("an object file for C", f"{program} emit {workload} -o out"),
        ("something else", f"{program} tune softmax_mn:M=64,N=1000"),
    ):
        console.print(Text.assemble(f"  {does:<22}", (command, "cyan")), soft_wrap=True)


def _show(console: Console, arguments: list[str]) -> int:
    """Run a command with its output on this terminal; its exit code."""
    _echo(console, arguments)
    return subprocess.run([_program(), *arguments], check=False).returncode


def _ask(console: Console, arguments: list[str]) -> Document:
    """Run a command with --json; its document. Leaves with its exit code if it fails."""
    _echo(console, arguments)
    done = subprocess.run([_program(), *arguments, "--json"], check=False, stdout=subprocess.PIPE)
    if done.returncode:
        sys.stderr.write(done.stdout.decode())
        raise SystemExit(done.returncode)
    document: Document = json.loads(done.stdout)
    return document


def _echo(console: Console, arguments: list[str]) -> None:
    text = Text.assemble(("$ ", "dim"), (f"tilewright {' '.join(arguments)}", "bold cyan"))
    console.print(text, soft_wrap=True)


def _program() -> str:
    """The command of the environment this script runs in."""
    return str(Path(sys.executable).with_name("tilewright"))


def _program_to_type() -> str:
    """The same as a user would type it from here."""
    program = Path(_program())
    return (
        str(program.relative_to(Path.cwd())) if program.is_relative_to(Path.cwd()) else "tilewright"
    )


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workload", default=WORKLOAD, help="what to tune instead")
    parser.add_argument("--trials", type=int, default=64, help="candidates to measure")
    parser.add_argument("--seconds", type=float, default=4.0, help="time for the comparison")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
