"""Bundles: all that a lock file names in one file, the same bytes each time, and nothing believed
that does not match its hash."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.service.records import keep_best
from tilewright.db import Store, open_store
from tilewright.schedules.target import Target
from tilewright.service.build.bundle import Bundle
from tilewright.service.build.lock_file import LockError, LockFile
from tilewright.service.cli import run
from tilewright.service.resolve import workloads
from tilewright.tuner.machine.native_target import native_target

MATMUL = "matmul:M=8,N=8,K=8"

Command = Callable[..., Any]


@pytest.fixture
def command(
    store: Store,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    """Runs a command in an empty folder; its document. The database is the test's, or `db`."""
    monkeypatch.chdir(tmp_path)

    def execute(*words: str, code: int = 0, db: str = str(store.path)) -> Any:
        assert run([*words, "--json", "--db", db]) == code, capsys.readouterr()
        return json.loads(capsys.readouterr().out)

    return execute


@pytest.fixture
def native() -> Target:
    return native_target(probe=False)


@pytest.fixture
def bundle(command: Command, store: Store, native: Target) -> Bundle:
    """A kernel with a record, and one without."""
    keep_best(store, workloads.workload_of(MATMUL), native)
    command("lock", f"gemm={MATMUL}")
    command("lock", "soften=softmax_mn:M=4,N=20", "--min-grade", "default")
    command("export", "all.zip", "--bundle", "tilewright.lock.json")
    return Bundle(Path("all.zip"))


def lock_file() -> LockFile:
    return LockFile.from_text(Path("tilewright.lock.json").read_text(), "the file")


def rewritten(bundle: Bundle, change: Callable[[dict[str, bytes]], None]) -> Path:
    """The bundle with other members."""
    with zipfile.ZipFile(bundle.path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    path = bundle.path.with_name("changed.zip")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def test_a_bundle_holds_what_the_lock_file_names(bundle: Bundle, store: Store) -> None:
    lock = lock_file()
    assert bundle.lock() == lock
    names = zipfile.ZipFile(bundle.path).namelist()
    blobs = {ref.sha256 for kernel in lock.kernels for ref in kernel.files.values()}
    assert sorted(names) == sorted(
        ["records.jsonl", "tilewright.lock.json", *(f"blobs/sha256/{name}" for name in blobs)]
    )
    key = lock.kernels[0].variants[0].record_key
    assert key is not None
    record = store.record(key)
    assert record is not None
    assert bundle.record(key) == json.loads(json.dumps(record.to_json()))


def test_the_same_lock_file_gives_the_same_bundle(bundle: Bundle, command: Command) -> None:
    first = bundle.path.read_bytes()
    command("export", "again.zip", "--bundle", "tilewright.lock.json")
    assert Path("again.zip").read_bytes() == first


def test_files_come_out_of_a_bundle_without_anything_else(
    bundle: Bundle, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("fetch", "-o", "here")
    monkeypatch.setenv("TILEWRIGHT_URL", "http://127.0.0.1:1")  # nobody is asked
    nowhere = str(tmp_path / "none" / "at all.sqlite")
    command("fetch", "-o", "there", "--offline", "all.zip", db=nowhere)
    assert not Path(nowhere).parent.exists()
    here, there = (sorted(Path(name).iterdir()) for name in ("here", "there"))
    assert [file.name for file in here] == [file.name for file in there]
    assert [file.read_bytes() for file in here] == [file.read_bytes() for file in there]


def test_an_import_is_served_from_and_never_believed(
    bundle: Bundle, command: Command, tmp_path: Path, native: Target
) -> None:
    other = str(tmp_path / "other.sqlite")
    document = command("import", "all.zip", db=other)
    assert (document["added"], document["blobs"], document["bad"]) == (1, 4, [])
    assert command("import", "all.zip", db=other)["known"] == 1
    kernel = lock_file().kernels[0]
    with open_store(other) as store:
        assert store.best(kernel.workload_key, native.key) is None
        assert store.blob(kernel.object.sha256) is not None
        assert not store.check()
    command("fetch", "-o", "there", db=other)
    command("lock", "--check", code=3, db=other)


def _swap(members: dict[str, bytes]) -> None:
    first, second, *_ = [name for name in members if name.startswith("blobs/")]
    members[first], members[second] = members[second], members[first]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_swap, 6),
        (lambda m: m.pop(next(name for name in m if name.startswith("blobs/"))), 6),
        (lambda m: m.update({name: b"x" for name in m if name.startswith("blobs/")}), 6),
    ],
)
def test_a_changed_bundle_gives_nothing(
    bundle: Bundle, command: Command, tmp_path: Path,
    change: Callable[[dict[str, bytes]], None], code: int,
) -> None:  # fmt: skip
    changed = rewritten(bundle, change)
    command("fetch", "-o", "out", "--offline", str(changed), code=code)
    assert not Path("out").exists()
    other = str(tmp_path / "other.sqlite")
    command("import", str(changed), code=code, db=other)
    kernels = lock_file().kernels
    with open_store(other) as store:
        for ref in (ref for kernel in kernels for ref in kernel.files.values()):
            blob = store.blob(ref.sha256)
            assert blob is None or ref.check(blob.data, "stored")


def test_a_forged_record_does_not_come_in(bundle: Bundle, command: Command, tmp_path: Path) -> None:
    def forge(members: dict[str, bytes]) -> None:
        members["records.jsonl"] = members["records.jsonl"].replace(b"0.001", b"0.0001")

    changed = rewritten(bundle, forge)
    other = str(tmp_path / "other.sqlite")
    document = command("import", str(changed), code=1, db=other)
    assert document["added"] == 0
    assert "has the key" in document["bad"][0]["reason"]


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"PK\x03\x04" + b"\0" * 99, b"not a zip"])
def test_what_is_no_bundle_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "b.zip"
    path.write_bytes(data)
    with pytest.raises(LockError, match="not a bundle"):
        Bundle(path).lock()


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(LockError, match=r"has no tilewright\.lock\.json"):
        Bundle(tmp_path / "b.zip").lock()


def test_fetching_from_a_bundle_takes_neither_numpy_nor_a_compiler(bundle: Bundle) -> None:
    """So a build machine needs the bare package."""
    program = (
        "import sys\n"
        "from tilewright.service.cli import run\n"
        "assert run(['fetch', '-o', 'out', '--offline', 'all.zip']) == 0\n"
        "heavy = {'numpy', 'llvmlite', 'xgboost', 'sqlalchemy', 'fastapi'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
