"""Commands read without Typer: the same arguments as Typer finds, or none at all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import typer

from tilewright.schedules.rewrites import REWRITES
from tilewright.schedules.trace_document import REWRITES as NAMES
from tilewright.service.cli import best, run, tune
from tilewright.service.cli.fast_path import read
from tilewright.service.cli.options import command
from tilewright.service.grade import Grade
from tilewright.tuner.machine.native_target import native_target
from tilewright.tuner.search.strategies import Strategy

SPELLINGS = [
    "matmul:M=4,N=4,K=4",
    "matmul:M=4,N=4,K=4 --json",
    "--json matmul:M=4,N=4,K=4 --db some.db --threads 2",
    "matmul:M=4,N=4,K=4 --db=some.db --target=native --seed=3 --min-grade default",
    "--expr C[i]=A[i] --tensor A=f32[4] --tensor B=f32[4] --range r=3 --constant A",
    "name --expr C[i]=A[i] --allow-error 1e-3",
    "my_ops.py:function --measurer replay:x.json",
    "",
]
NOT_PLAIN = [
    "--help",
    "-h",
    "matmul:M=4 other",
    "matmul:M=4 --threads 0",
    "matmul:M=4 --threads two",
    "matmul:M=4 --threads",
    "matmul:M=4 --threads --json",
    "matmul:M=4 --seed=-1",
    "matmul:M=4 --json=yes",
    "matmul:M=4 --db a --db b",
    "matmul:M=4 --db=",
    "matmul:M=4 --min-grade best",
    "matmul:M=4 --allow-error nan",
    "matmul:M=4 --unknown",
    "-- matmul:M=4",
    "--js matmul:M=4",
]


def by_typer(function: Callable[..., None], words: list[str]) -> dict[str, Any]:
    """What Typer hands to `function`."""
    found: dict[str, Any] = {}

    def taken(**values: Any) -> None:
        found.update(values)

    taken.__signature__ = __import__("inspect").signature(function)  # type: ignore[attr-defined]
    taken.__annotations__ = function.__annotations__
    taken.__module__ = function.__module__
    app = typer.Typer()
    command(app, "asked")(taken)
    app(args=words, standalone_mode=False)
    return found


@pytest.mark.parametrize("words", SPELLINGS)
def test_what_is_plain_is_read_as_typer_reads_it(words: str) -> None:
    found = read(best.best, words.split())
    assert found is not None
    defaults = {"min_grade": Grade.EXACT}
    assert {**defaults, **found} == by_typer(best.best, words.split())


TUNE_SPELLINGS = [
    "matmul:M=4,N=4,K=4 --trials 8 --seconds 2.5 --strategy random --fresh --json",
    "--expr C[i]=A[i] --tensor A=f32[4] --threads 2 --db some.db --measurer simulated:x.json",
    "--many list.json",
]
TUNE_DEFAULTS = {
    "more": None, "many": None, "trials": 64, "seconds": None, "fresh": False,
    "strategy": Strategy.ANNEALING,
}  # fmt: skip


@pytest.mark.parametrize("words", TUNE_SPELLINGS)
def test_a_plain_tune_is_read_as_typer_reads_it(words: str) -> None:
    found = read(tune.tune, words.split())
    assert found is not None
    assert {**TUNE_DEFAULTS, **found} == by_typer(tune.tune, words.split())


@pytest.mark.parametrize("words", ["a b", "a --trials 0", "a --seconds -1", "a --strategy best"])
def test_another_tune_is_left_to_typer(words: str) -> None:
    assert read(tune.tune, words.split()) is None


@pytest.mark.parametrize("words", NOT_PLAIN)
def test_the_rest_is_left_to_typer(words: str) -> None:
    assert read(best.best, words.split()) is None


@pytest.mark.parametrize("words", ["matmul:M=4 --threads 0", "matmul:M=4 --unknown", "a b"])
def test_what_is_wrong_is_told_by_typer(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["best", *words.split()]) == 2
    assert "See `tilewright best --help`." in capsys.readouterr().err


def test_rewriting_steps_are_known_by_name() -> None:
    assert {kind.__name__ for kind in REWRITES} == NAMES


HEAVY = (
    "typer", "click", "rich", "pydantic", "numpy", "sqlalchemy", "llvmlite.binding",
    "importlib.metadata", "tilewright.schedules.primitives",
    "tilewright.schedules.frontend.notation",
    "tilewright.schedules.lowering.lower",
)  # fmt: skip


def test_a_quick_command_loads_no_more_than_it_needs(tmp_path: Any) -> None:
    """The database is missing, which is found after all but the record is read."""
    program = (
        "import sys\n"
        "from tilewright.service.cli import run\n"
        "assert run(sys.argv[1:]) == 3\n"
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "sys.exit(f'loaded: {loaded}' if loaded else 0)\n"
    )
    native_target(probe=False)  # kept in the cache folder from here on
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            program,
            "best",
            "matmul:M=4,N=4,K=4",
            "--db",
            str(tmp_path / "x"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
