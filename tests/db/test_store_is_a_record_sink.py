"""The tuner's protocol is satisfied by shape: neither package knows the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tilewright.db import Store, open_store
from tilewright.tuner.session.report import RecordSink


def as_sink(store: Store) -> RecordSink:
    return store  # mypy holds the signatures to the protocol


def test_a_store_is_a_record_sink(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "x.sqlite")) as store:
        assert as_sink(store) is store


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = {"sqlalchemy", "alembic", "numpy", "llvmlite", "xgboost", "tilewright.tuner"}
    code = f"import sys; from tilewright import db; print(sorted({heavy!r} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_opening_a_store_loads_neither_numpy_nor_alembic(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sqlite")
    open_store(path).close()
    code = (
        f"import sys; from tilewright import db; db.open_store({path!r}).close()\n"
        "print(sorted({'numpy', 'alembic', 'tilewright.tuner', 'llvmlite'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
