"""The examples do what they say."""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.tuning_curve import curve_of, draw, levels_of
from examples import demo, my_ops
from examples.demo import SHOWN, Show, _echo, comparison, transcript
from tests.support.paths import ROOT, example_target
from tilewright.schedules import Workload
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.spelling import parse_workload
from tilewright.service.cli import run
from tilewright.tuner.search.default import default_trace

REPORT: dict[str, Any] = {
    "workload": {"name": "matmul:M=8,N=8,K=8", "flops": 1024},
    "target": {"cpu": "znver3", "threads": 1, "peak_gflops": 100.0},
    "strategy": "annealing",
    "seed": 0,
    "trials": {"total": 5},
    "wall_secs": 1.5,
    "curve": [
        {"trial": 1, "wall_secs": 0.1, "best_run_secs": 4e-8},
        {"trial": 3, "wall_secs": 0.2, "best_run_secs": 2e-8},
    ],
}


@pytest.mark.parametrize("name", ["attention_scores", "banded_matvec", "causal_relu"])
def test_own_expressions_have_a_schedule(name: str) -> None:
    workload: Workload = getattr(my_ops, name)().normalised()
    target = example_target("znver3")
    assert default_trace(workload, target).steps
    assert lower(workload, default_trace(workload, target)).body


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_c_program_links_an_emitted_kernel(tmp_path: Path) -> None:
    workload = "matmul:M=96,N=80,K=64"
    default = ["--min-grade", "default", "--db", str(tmp_path / "none.sqlite")]
    assert run(["emit", workload, "--name", "gemm", "-o", str(tmp_path), *default]) == 0
    program = tmp_path / "gemm"
    source = ROOT / "examples" / "c" / "main.c"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fopenmp", "-I", str(tmp_path)]
    subprocess.run(
        ["cc", *flags, str(source), str(tmp_path / "gemm.o"), "-o", str(program)], check=True
    )
    done = subprocess.run([str(program)], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("7680 numbers, all right")


def test_a_project_tests_with_mocked_timings() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=ROOT / "examples" / "pytest_project",
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


def entry(title: str, **against: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": title, "bound_secs": 0.0016, "verified": True,
        "stored": "0123456789ab", "bench": {"kernel": {"run_secs": 0.002}, "against": against},
    }  # fmt: skip


def test_the_demo_compares_with_libraries_and_the_bound() -> None:
    libraries = {"numpy": "2.4.6", "blas": "OpenBLAS 0.3.31", "core": "SkylakeX"}
    numpy = {"run_secs": 0.004, "speedup": 2.0, "way": "np.dot", "libraries": libraries}
    absent = {"run_secs": None, "speedup": None, "detail": "PyTorch is not installed"}
    target = {"cpu": "znver3", "probes": {"peak_gflops": {"f32": [125.0]}}}
    entries = [entry("a product", numpy=numpy, torch=absent), entry("a sum", numpy=numpy)]
    nest = "for i in range(8):\n  a\n  for i.t in range(3):\n    b"
    text = transcript({"entries": entries, "target": target, "nest": nest})
    for part in (
        "a product", "2.000 ms", "80 %", "2.00x", "0123456789ab", "np.dot",
        "OpenBLAS 0.3.31 with SkylakeX kernels", "PyTorch is not installed", "and 2 lines more",
    ):  # fmt: skip
        assert part in text


def test_the_demo_fills_no_more_than_80_columns() -> None:
    """Its own lines end where words do; a terminal would end them anywhere."""
    way = {"way": ", ".join(["one step of the reduction at a time"] * 3)}
    libraries = {"numpy": "2.4.6", "blas": "OpenBLAS 0.3.31", "core": "SkylakeX"}
    numpy = {"run_secs": 0.004, "speedup": 16.62, "libraries": libraries, **way}
    target = {"cpu": "znver3", "probes": {"peak_gflops": {"f32": [125.0]}}}
    entries = [{**entry("product 512x512x512", numpy=numpy, torch=numpy), "stored": "01234567"}]
    nest = "kernel()\n" + 16 * " " + "C[i] += " + " * ".join(f"A[i, {n}]" for n in range(20))
    text = transcript({"entries": entries, "target": target, "nest": nest})
    assert max(map(len, text.splitlines())) < 80
    assert "\u2026" not in text
    printed = io.StringIO()
    Console(width=200, file=printed, color_system=None).print(comparison(entries, target))
    assert all(line.rstrip() in text for line in printed.getvalue().splitlines())


@pytest.mark.parametrize("show", SHOWN)
def test_the_demo_s_commands_can_be_typed_as_they_are_shown(show: Show) -> None:
    printed = io.StringIO()
    arguments = ["tune", *show.arguments, "--trials", "32", "--seconds", "8", "--fresh"]
    _echo(Console(width=80, file=printed, color_system=None), arguments)
    shown = printed.getvalue()
    assert max(map(len, shown.splitlines())) < 80
    typed = shlex.split(shown.removeprefix("$ ").replace("\\\n", ""))
    assert typed == ["tilewright", *arguments]


@pytest.mark.parametrize(
    ("codes", "seconds"),
    [([0], ["8"]), ([1, 0], ["8", "32"]), ([1, 1, 1], ["8", "32", "128"]), ([2], ["8"])],
)
def test_the_demo_allows_a_busy_machine_more_seconds(
    codes: list[int], seconds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def search(console: Console, command: list[str]) -> int:
        asked.append(command)
        return codes[len(asked) - 1]

    monkeypatch.setattr(demo, "_search", search)
    options = demo._options(["--fresh"])
    assert demo._tune(Console(file=io.StringIO()), SHOWN[0], options) == codes[-1]
    assert [command[command.index("--seconds") + 1] for command in asked] == seconds
    assert ["--fresh" in command for command in asked] == [True, *[False] * (len(codes) - 1)]


def test_the_demo_takes_its_examples_as_commands_do() -> None:
    for show in SHOWN:
        words = show.arguments
        if words[0] == "--expr":
            assert parse_workload(expr=words[1], tensors=list(words[3::2])).outputs
        else:
            assert parse_workload(words[0]).outputs


def test_a_tuning_curve_holds_the_best_so_far() -> None:
    curve = curve_of(REPORT)
    assert curve.trials == (1, 3)
    assert curve.gflops == pytest.approx((25.6, 51.2))
    assert curve.label == "annealing, seed 0: 5 trials in 2 s"


def test_a_run_in_which_nothing_passed_has_no_curve() -> None:
    with pytest.raises(ValueError, match="no candidate passed"):
        curve_of({**REPORT, "curve": []})


def test_levels_are_the_peak_and_the_peers() -> None:
    bench = {"against": {"numpy": {"run_secs": 1.6e-8}, "torch": {"run_secs": None}}}
    levels = levels_of(REPORT, bench)
    assert [level.label for level in levels] == ["probed peak of a core", "NumPy"]
    assert levels[1].gflops == pytest.approx(64.0)


def test_the_same_report_gives_the_same_picture(tmp_path: Path) -> None:
    pictures = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for path in pictures:
        draw("a title", [curve_of(REPORT)], levels_of(REPORT, None), path)
    assert pictures[0].read_bytes() == pictures[1].read_bytes()
