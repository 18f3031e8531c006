"""Tune four computations and race them against NumPy and PyTorch: what `make demo` runs.

Every step is a command anyone can type, and is printed before it runs. What is found goes to the
user's own database (`TILEWRIGHT_DB` names another), so the commands at the end work, and a second
run has nothing left to measure. `--fresh` measures everything again.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import re
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

NEST_LINES = 40
TAIL_LOOP = re.compile(r" *for [\w.]+\.t in ")
"""A loop over what a split leaves over: its name ends in `.t`."""
PEERS = {"numpy": "NumPy", "torch": "PyTorch"}
FAILED = 1
"""The exit code of a search that found nothing that passes the full check."""
MORE_SECONDS = (1, 4, 16)
"""How many times the seconds of a search are allowed, one try after the other."""
WIDTH = 80
"""Columns that are filled at most, on a terminal or not: the least that everybody has."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Show:
    """A computation to show, as `tilewright` takes it, and why it is here."""

    title: str
    why: str
    arguments: tuple[str, ...]


SHOWN = (
    Show("product 512x512x512", "near the peak", ("matmul:M=512,N=512,K=512",)),
    Show("product 127x131x137", "no size divides anything", ("matmul:M=127,N=131,K=137",)),
    Show("softmax 512x512", "a reduction of rows", ("softmax_mn:M=512,N=512",)),
    Show(
        "max-plus 192x192",
        "a product that is in no library",
        (
            "--expr", "C[i,j] max= A[i,k] + B[k,j]",
            "--tensor", "A=f32[192,192]", "--tensor", "B=f32[192,192]",
        ),
    ),
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration; the exit code of the first command that failed, else 0."""
    options = _options(arguments)
    shown: tuple[Show, ...] = SHOWN
    if options.workload:
        shown = (Show(options.workload, "asked for", (options.workload,)),)
    console = Console(highlight=False)
    _introduce(console, len(shown))
    target = _ask(console, ["target"])  # probed before seconds are counted
    console.print()
    entries = []
    for number, show in enumerate(shown, start=1):
        console.print(f"[{number}/{len(shown)}] {show.title}: {show.why}", style="bold")
        code = _tune(console, show, options)
        if code:
            return code
        entries.append(_raced(console, show, options.seconds))
        console.print()
    nest = _ask(console, ["show", *shown[0].arguments, "--what", "nest"])
    console.print()
    console.print(comparison(entries, target))
    _print_nest(console, shown[0].title, str(nest["text"]))
    _say_what_next(console, shown[0].arguments[0])
    if options.save:
        document = {"entries": entries, "target": _kept(target), "nest": nest["text"]}
        options.save.write_text(json.dumps(document))
    return 0


def comparison(entries: Sequence[Mapping[str, Any]], target: Mapping[str, Any]) -> Group:
    """Time, share of the bound, and how much faster than each library, a row a computation."""
    said = [line for text in _said(entries, target) for line in _folded(text, "    ")]
    return Group(_table(entries, target), Text("\n".join(said)))


def _table(entries: Sequence[Mapping[str, Any]], target: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.title = f"one core of {target['cpu']}"
    table.add_column("", no_wrap=True)
    for name in ("time", "of bound", *(f"vs {title}" for title in PEERS.values())):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("stored", justify="center", no_wrap=True)
    for entry in entries:
        secs = entry["bench"]["kernel"]["run_secs"]
        share = f"{100 * entry['bound_secs'] / secs:.0f} %"
        against = [_faster(entry["bench"]["against"].get(peer)) for peer in PEERS]
        table.add_row(entry["title"], _time(secs), share, *against, entry["stored"])
    return table


def _said(entries: Sequence[Mapping[str, Any]], target: Mapping[str, Any]) -> list[str]:
    """What was verified, what the libraries say they use, and how each was asked."""
    from tilewright.peers.library_versions import described

    wrong = [str(entry["title"]) for entry in entries if not entry["verified"]]
    lines = [
        f"NOT verified: {', '.join(wrong)}" if wrong else "all verified in exact arithmetic",
        f"peak: {target['probes']['peak_gflops']['f32'][0]:.0f} GFLOP/s, probed on this core",
    ]
    for peer, title in PEERS.items():
        sides = [entry["bench"]["against"].get(peer, {}) for entry in entries]
        said = [side["libraries"] for side in sides if side.get("libraries")]
        ways = dict.fromkeys(str(side["way"]) for side in sides if side.get("way"))
        if said:
            lines.append(described(said[0]))
            lines.append(f"  {title} was fastest as: {', '.join(ways)}")
        else:
            why = [str(side["detail"]) for side in sides if side.get("detail")]
            lines.append(f"{title}: {why[0] if why else 'not asked'}")
    return lines


def _folded(line: str, deeper: str, end: str = "") -> list[str]:
    """`line` in lines of less than `WIDTH` columns, which all but the last end in `end`; those
    after the first are indented by `deeper` more."""
    if len(line) < WIDTH:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    lines = textwrap.wrap(
        line.strip(), WIDTH - 1 - len(end), initial_indent=indent,
        subsequent_indent=indent + deeper, break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return [f"{part}{end}" for part in lines[:-1]] + lines[-1:]


def transcript(document: Mapping[str, Any]) -> str:
    """What a run printed at its end, from what it saved: the comparison and the first loops."""
    console = Console(file=io.StringIO(), width=WIDTH, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(comparison(document["entries"], document["target"]))
    lines = [line.rstrip() for line in captured.get().strip("\n").splitlines()]
    return "\n".join([*lines, "", *_whole_loops(str(document["nest"]))])


def _faster(side: Mapping[str, Any] | None) -> str:
    return "-" if not side or side["speedup"] is None else f"{side['speedup']:.2f}x"


def _time(secs: float) -> str:
    return f"{secs * 1e6:.1f} us" if secs < 1e-3 else f"{secs * 1e3:.3f} ms"


def _kept(target: Document) -> Document:
    """What `comparison` needs of a target."""
    return {"cpu": target["cpu"], "probes": {"peak_gflops": target["probes"]["peak_gflops"]}}


def _introduce(console: Console, count: int) -> None:
    console.print(
        f"Tilewright writes schedules for {count} computations, compiles each with LLVM,\n"
        "runs it on one core, checks the result against NumPy in exact arithmetic,\n"
        "times it, and stores it. Libraries are asked in every way they have; their\n"
        "fastest one counts. The first run also probes this machine, for two seconds.\n"
    )


def _tune(console: Console, show: Show, options: argparse.Namespace) -> int:
    """Search; the exit code. Where the seconds were too few for a verified best, as on a busy
    machine, go on with more of them."""
    code = FAILED
    for times in MORE_SECONDS:
        budget = ["--trials", str(options.trials), "--seconds", f"{times * options.tune_seconds:g}"]
        fresh = ["--fresh"] if options.fresh and times == 1 else []
        code = _search(console, ["tune", *show.arguments, *budget, *fresh])
        if code != FAILED:
            break
    return code


def _search(console: Console, command: list[str]) -> int:
    """Run a search, with the command's own progress on this terminal; its exit code."""
    _echo(console, command)
    start = time.perf_counter()
    done = subprocess.run([_program(), *command], check=False, stdout=subprocess.PIPE)
    if done.returncode:
        sys.stdout.write(done.stdout.decode())
        sys.stdout.flush()
    console.print(f"  {time.perf_counter() - start:.1f} s", style="dim")
    return done.returncode


def _raced(console: Console, show: Show, seconds: float) -> Document:
    """What `comparison` needs of one computation."""
    from tilewright.schedules.spelling import parse_workload
    from tilewright.tuner.machine.native_target import native_target
    from tilewright.tuner.machine.roofline import bound_for

    words = list(show.arguments)
    if words[0] == "--expr":
        tensors = words[3::2]
        workload = parse_workload(expr=words[1], tensors=tensors)
    else:
        workload = parse_workload(words[0])
    peers = [p for p in PEERS if p != "torch" or importlib.util.find_spec("torch")]
    command = ["bench", *words, "--against", ",".join(peers), "--seconds", f"{seconds:g}"]
    times = _ask(console, command)
    best = _ask(console, ["best", *words])
    limit = bound_for(workload.normalised(), native_target(1))
    return {
        "title": show.title,
        "bench": times,
        "bound_secs": limit.secs,
        "verified": best["verified"],
        "stored": str(best["record_key"]).removeprefix("sha256:")[:8],
    }


def _whole_loops(nest: str) -> list[str]:
    """The first lines of a nest, up to what fills no whole tile; then what is left out."""
    lines = nest.splitlines()
    whole = next((i for i, line in enumerate(lines) if TAIL_LOOP.match(line)), len(lines))
    shown = lines[: min(whole, NEST_LINES)]
    rest = len(lines) - len(shown)
    folded = [part for line in shown for part in _folded(line, "      ")]
    return [*folded, f"... and {rest} lines more, for what fills no whole tile"] if rest else folded


def _print_nest(console: Console, title: str, nest: str) -> None:
    console.print(
        f"\nThe loops of {title} (Tilewright's own notation):", style="bold", soft_wrap=True
    )
    shown = "\n".join(_whole_loops(nest))
    if console.is_terminal:
        code = Syntax("", "python", background_color="default").highlight(shown)
        code.rstrip()
        console.print(code, soft_wrap=True)
    else:
        console.print(shown, soft_wrap=True, markup=False)


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
    # No line may end within quotes: the spaces there are none while lines are folded.
    words = " ".join(shlex.quote(word).replace(" ", "\0") for word in arguments)
    lines = [line.replace("\0", " ") for line in _folded(f"  tilewright {words}", "  ", " \\")]
    text = Text.assemble(("$ ", "dim"), ("\n".join(lines)[2:], "bold cyan"))
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
    parser.add_argument("--workload", help="only this one instead")
    parser.add_argument("--trials", type=int, default=32, help="candidates to measure, each")
    parser.add_argument("--tune-seconds", type=float, default=8.0, help="time to search, each")
    parser.add_argument("--seconds", type=float, default=2.0, help="time to compare, each")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the figures as JSON")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
