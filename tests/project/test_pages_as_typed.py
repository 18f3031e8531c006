"""What the pages tell users to type works as it is typed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn

from tests.support.paths import ROOT
from tilewright.db import open_store
from tilewright.schedules import operators
from tilewright.service.cli import run
from tilewright.service.http.app import create_app
from tilewright.service.settings import Settings
from tilewright.tuner import Budget, compile, tune
from tilewright.tuner.measure.mocked.simulated import read_simulated


def console_lines(page: str, holding: str) -> list[str]:
    """The commands of the first console block that has `holding`, continued lines joined."""
    for block in re.findall(r"```console\n(.*?)```", (ROOT / page).read_text(), re.DOTALL):
        if holding in block:
            joined = block.replace("\\\n", " ")
            return [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
    raise AssertionError(f"{page} has no console block with {holding!r}")


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_build_of_the_readme(tmp_path: Path) -> None:
    lines = console_lines("README.md", "cc -fopenmp")
    emit = next(line for line in lines if line.startswith("tilewright emit"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    words = emit.split()[1:]
    words[words.index("out")] = str(tmp_path / "out")
    default = ["--min-grade", "default", "--db", str(tmp_path / "none.sqlite")]
    assert run([*words, *default]) == 0
    compiler = next(line for line in lines if line.startswith("cc ")).split("  #")[0]
    done = subprocess.run(compiler, shell=True, cwd=tmp_path, check=True, capture_output=True)
    assert b"all right" in done.stdout


def test_the_python_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DB", str(tmp_path / "readme.sqlite"))
    text = (ROOT / "README.md").read_text()
    code = next(b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "tw.build" in b)
    # Probing this machine and its timings would take seconds; neither is what is typed.
    shorter = code.replace("tw.tune(y)", "tw.tune(y, measurer=machine, budget=few)")
    assert shorter != code
    rng = np.random.default_rng(0)
    shapes = {"x0": (96, 64), "w0": (64, 80), "b0": (80,)}
    given = {n: rng.integers(-4, 5, shape).astype(np.float32) for n, shape in shapes.items()}
    machine = read_simulated(ROOT / "examples" / "machine.json")
    names: dict[str, Any] = {**given, "machine": machine, "few": Budget(trials=4)}
    exec(shorter, names)
    expected = np.maximum(given["x0"] @ given["w0"] + given["b0"], 0)
    assert np.array_equal(names["c"], expected)


def test_a_report_s_trace_and_names_of_targets_are_taken(tmp_path: Path) -> None:
    workload = operators.matmul(M=8, N=8, K=8)
    machine = read_simulated(ROOT / "examples" / "machine.json")
    report = tune(workload, "native", budget=Budget(trials=2), measurer=machine)
    assert report.best is not None
    kernel = compile(workload, report.best.trace, "native")
    a = np.eye(8, dtype=np.float32)
    assert np.array_equal(kernel(a, a), a)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A service in this process, whose jobs nobody runs."""
    with open_store(str(tmp_path / "store.sqlite")) as store:
        config = uvicorn.Config(create_app(Settings(), store), port=0, log_config=None)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"localhost:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_commands_of_the_http_page(url: str, tmp_path: Path) -> None:
    lines = console_lines("docs/http.md", "wait=30s")
    script = "set -e\n" + "\n".join(lines)
    script = script.replace("localhost:8470", url).replace("wait=30s", "wait=0s")
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True, capture_output=True)
    assert json.loads(done.stdout)["state"] == "QUEUED"
