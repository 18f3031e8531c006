"""What a query imports: a build that asks for an answer waits for no library it does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.service.records import MATMUL, keep_best
from tilewright.db import open_store
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.machine.native_target import native_target

HEAVY = {
    "numpy",
    "llvmlite.binding",
    "xgboost",
    "scipy",
    "sqlalchemy",
    "alembic",
    "fastapi",
    "psutil",
}
CODE = """
import sys
from tilewright.service.cli import run
code = run(sys.argv[1:])
print(code, *sorted(sys.modules))
"""


@pytest.mark.parametrize(
    ("words", "code"), [(["best", MATMUL], 0), (["status", "--url", "http://127.0.0.1:1"], 5)]
)
def test_a_query_loads_nothing_heavy(
    tmp_path: Path, workload: Workload, words: list[str], code: int
) -> None:
    db = tmp_path / "store.sqlite"
    with open_store(str(db)) as store:
        keep_best(store, workload, native_target(probe=False))
    command = [sys.executable, "-c", CODE, *words, "--db", str(db)]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    found, *modules = said.stdout.splitlines()[-1].split()
    assert int(found) == code, said.stderr
    assert HEAVY & set(modules) == set()
