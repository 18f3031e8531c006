"""What is loaded by whom: start-up is a feature, measured in modules and not by a clock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

HEAVY = (
    "alembic",
    "distributed",
    "fastapi",
    "llvmlite.binding",  # LLVM itself
    "matplotlib",
    "scipy",
    "sqlalchemy",
    "uvicorn",
    "xgboost",
)


def loaded(code: str, data: Path) -> set[str]:
    """Modules a new interpreter has loaded after `code`; nothing is written to it."""
    program = (
        f"import sys, json, io\nout, sys.stdout = sys.stdout, io.StringIO()\n{code}\n"
        "json.dump(sorted(sys.modules), out)"
    )
    folders = {"XDG_DATA_HOME": str(data), "XDG_CACHE_HOME": str(data), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", **folders},
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "code",
    [
        "from tilewright import schedules, costmodel, tuner, db, service",
        "import tilewright.tuner.testing, tilewright.service.testing",
        "import tilewright as tw; tw.Client, tw.Budget, tw.open_database, tw.__version__",
        "import tilewright.service.client",
        "from tilewright.service.cli import run\nrun(['--help'])",
        "from tilewright.service.cli import run\nrun(['status', '--url', 'http://127.0.0.1:9'])",
    ],
)
def test_clients_load_nothing_heavy(code: str, tmp_path: Path) -> None:
    assert not loaded(code, tmp_path) & {*HEAVY, "numpy"}


def test_the_plugin_that_every_pytest_run_loads_imports_nothing_but_pytest(tmp_path: Path) -> None:
    before = loaded("import pytest", tmp_path)
    more = loaded("import pytest, tilewright.pytest_plugin", tmp_path) - before
    assert more == {"tilewright", "tilewright.pytest_plugin"}


@pytest.mark.parametrize("asked", [["best", "matmul:M=8,N=8,K=8"], ["ops"]])
def test_queries_load_no_compiler_learner_or_orm(asked: list[str], tmp_path: Path) -> None:
    target = ROOT / "examples" / "targets" / "znver3.json"
    more = ["--target", str(target)] if asked[0] == "best" else []
    modules = loaded(f"from tilewright.service.cli import run\nrun({[*asked, *more]!r})", tmp_path)
    assert not modules & set(HEAVY)


def test_schedules_are_pure() -> None:
    """Every module of the package, and still nothing but NumPy and the standard library."""
    names = [
        ".".join(("tilewright", *path.relative_to(ROOT).with_suffix("").parts))
        for path in sorted((ROOT / "schedules").rglob("*.py"))
        if path.name != "__init__.py"
    ]
    found = loaded("\n".join(f"import {name}" for name in names), ROOT)
    modules = {name.partition(".")[0] for name in found}
    foreign = {m for m in modules if m not in sys.stdlib_module_names and not m.startswith("_")}
    assert foreign == {"tilewright", "numpy"}


def test_promised_names_are_what_they_are_called() -> None:
    """Also once the modules they come from are loaded: a module must not hide a function."""
    import tilewright.tuner.tuning
    from tilewright.schedules import (  # noqa: F401
        Target,
        Workload,
        compute,
        operators,
        placeholder,
        reduce_axis,
        sum,
    )
    from tilewright.service.client import Client
    from tilewright.tuner import compile, tune

    assert tune is tilewright.tuner.tuning.tune
    assert all(callable(x) for x in (Client, Target, Workload, compile, compute, placeholder, sum))
