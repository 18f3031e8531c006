"""Processes are started with the modules that are installed, wherever a command is called."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.machine import keep_probes
from tests.support.paths import ROOT

PACKAGES = ("schedules", "costmodel", "tuner", "db", "service", "peers")


def test_no_module_is_run_but_by_module_command() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in PACKAGES
        for path in sorted((ROOT / "tilewright" / package).rglob("*.py"))
        if path.name != "child_command.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value == "-m"
    ]
    assert not found, "say module_command(...), which leaves the caller's folder out"


@pytest.mark.parametrize("name", ["tilewright", "random.py", "numpy.py"])
def test_modules_of_the_folder_a_command_is_called_in_are_not_ours(
    tmp_path: Path, name: str
) -> None:
    program = Path(sys.executable).with_name("tilewright")
    assert program.exists(), "these tests are run where tilewright is installed"
    file = tmp_path / "here" / (name if name.endswith(".py") else f"{name}/__init__.py")
    file.parent.mkdir(parents=True)
    file.write_text('raise SystemExit("a module of the folder was imported")\n')
    environment = {n: v for n, v in os.environ.items() if n != "PYTHONPATH"}
    if name != "tilewright":  # whose command probes the machine, in a process of its own
        environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
        keep_probes(tmp_path / "cache")
    done = subprocess.run(
        [
            *(program, "tune", "--expr", "C[i,j] += A[i,k] * B[k,j]"),
            *("--tensor", "A=f32[16,16]", "--tensor", "B=f32[16,16]"),
            *("--trials", "1", "--threads", "1", "--json", "--db", tmp_path / "db.sqlite"),
        ],
        cwd=tmp_path / "here",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["best"]["verified"]
