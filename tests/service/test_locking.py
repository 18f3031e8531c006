"""`lock` and `fetch`: pins stay until they are moved, and only the bytes that are locked are
written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.service.records import keep_best
from tests.support.times import TIMES
from tilewright.db import Store
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.service.answers import analytic
from tilewright.service.build.lock_file import SEAL, FileRef, LockError, LockFile, entry_sha256
from tilewright.service.build.output_files import OutputFile, kernels_in, pkg_config, write
from tilewright.service.cli import run
from tilewright.service.resolve import workloads
from tilewright.tuner.machine.native_target import native_target
from tilewright.tuner.machine.x86_levels import level_target
from tilewright.tuner.search.default import default_trace

SMALL, OTHER = "matmul:M=8,N=8,K=8", "matmul:M=8,N=16,K=8"

PAIRS = 40 * TIMES  # each of two programs; TIMES=13: a thousand in all

Command = Callable[..., Any]


@pytest.fixture
def native() -> Target:
    return native_target(probe=False)


@pytest.fixture
def command(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str],
            monkeypatch: pytest.MonkeyPatch) -> Command:  # fmt: skip
    """Runs a command on the test's database in an empty folder; its document, or with `code` what
    it says on standard error."""
    monkeypatch.chdir(tmp_path)

    def execute(*words: str, code: int = 0) -> Any:
        assert run([*words, "--json", "--db", str(store.path)]) == code, capsys.readouterr()
        printed = capsys.readouterr()
        return json.loads(printed.out) if printed.out else printed.err

    return execute


def lock_file() -> LockFile:
    return LockFile.from_text(Path("tilewright.lock.json").read_text(), "the file")


def write_sealed(document: Any) -> None:
    """A lock file as somebody would forge it who knows the format."""
    for entry in document["kernels"]:
        if SEAL in entry:
            entry[SEAL] = entry_sha256(entry, document["targets"])
    Path("tilewright.lock.json").write_text(json.dumps(document))


def kept(
    store: Store, spelling: str, target: Target, secs: float = 1e-3, *, scheduled: bool = False
) -> str:
    workload = workloads.workload_of(spelling)
    trace = default_trace(workload, target).to_json() if scheduled else ()
    return keep_best(store, workload, target, secs=secs, trace=trace).key


def test_a_stored_record_is_pinned_with_the_bytes_of_its_object(
    command: Command, store: Store, native: Target
) -> None:
    key = kept(store, SMALL, native)
    document = command("lock", f"gemm={SMALL}")
    (kernel,) = document["kernels"]
    assert document["changes"] == [{"name": "gemm", "change": "added", "fields": []}]
    assert (kernel["name"], kernel["workload"], kernel["grade"]) == ("gemm", SMALL, "exact")
    assert (kernel["record_key"], kernel["run_secs"]) == (key, 1e-3)
    assert (kernel["target_key"], kernel["threads"]) == (native.key, 1)
    assert kernel["toolchain"]["codegen"] > 0
    for name, kind in (("gemm.o", "object"), ("gemm.h", "header")):
        blob = store.blob(kernel[kind]["sha256"])
        assert blob is not None, name
        assert len(blob.data) == kernel[kind]["bytes"]
    written = command("fetch", "-o", "out")["files"]
    assert [Path(file["path"]).name for file in written] == [
        "gemm.o", "gemm.h", "tilewright-kernels.pc",
    ]  # fmt: skip
    assert key in Path("out/gemm.h").read_text()
    FileRef.from_json(kernel["object"]).check(Path("out/gemm.o").read_bytes(), "gemm.o")


def test_the_same_lock_gives_the_same_text(command: Command, store: Store, native: Target) -> None:
    kept(store, SMALL, native)
    kept(store, OTHER, native)
    command("lock", f"b={SMALL}", f"a={OTHER}")
    first = Path("tilewright.lock.json").read_text()
    Path("tilewright.lock.json").unlink()
    command("lock", f"a={OTHER}", f"b={SMALL}")
    assert Path("tilewright.lock.json").read_text() == first
    assert [kernel.name for kernel in lock_file().kernels] == ["a", "b"]
    assert LockFile.from_text(first, "it").to_text() == first
    assert max(map(len, (line for line in first.splitlines() if '"features"' not in line))) < 120


def test_a_pin_stays_until_it_is_moved(command: Command, store: Store, native: Target) -> None:
    first = kept(store, SMALL, native)
    command("lock", f"gemm={SMALL}")
    assert command("lock", "--check")["up_to_date"]
    before = Path("tilewright.lock.json").read_bytes()

    second = kept(store, SMALL, native, secs=5e-4, scheduled=True)
    told = command("lock", "--check", code=3)
    (change,) = told["changes"]
    assert (change["name"], change["change"]) == ("gemm", "stale")
    assert {"record_key", "run_secs"} <= set(change["fields"])
    again = command("lock", f"gemm={SMALL}")
    assert again["changes"][0]["change"] == "stale"
    assert Path("tilewright.lock.json").read_bytes() == before
    assert first in command("fetch", "-o", "out") or first in Path("out/gemm.h").read_text()

    assert command("lock", "--upgrade")["changes"][0]["change"] == "moved"
    assert lock_file().kernels[0].variants[0].record_key == second
    assert command("lock", "--check")["up_to_date"]


def test_locked_looks_nothing_up_and_says_what_the_file_lacks(
    command: Command, store: Store, native: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    def locked(*asked: str) -> tuple[int, list[str]]:
        code = run(["lock", *asked, "--locked", "--json", "--db", "/dev/null/none.sqlite"])
        return code, json.loads(capsys.readouterr().out)["problems"]

    kept(store, SMALL, native)
    command("lock", f"gemm={SMALL}")
    before = Path("tilewright.lock.json").read_text()
    assert locked() == (0, [])
    assert locked(f"gemm={SMALL}") == (0, [])
    assert locked(f"other={SMALL}") == (3, ["other: is not in the lock file"])
    assert locked(f"gemm={OTHER}") == (3, [f"gemm: is locked for another workload, {SMALL}"])
    assert Path("tilewright.lock.json").read_text() == before
    Path("tilewright.lock.json").write_text(before.replace(SMALL, OTHER))
    assert run(["lock", "--locked"]) == 6
    assert "gemm: entry_sha256 does not match" in capsys.readouterr().err


def test_another_record_of_the_same_code_makes_nothing_stale(
    command: Command, store: Store, native: Target
) -> None:
    first = kept(store, SMALL, native)
    command("lock", f"gemm={SMALL}")
    assert kept(store, SMALL, native, secs=5e-4) != first
    assert command("lock", "--check")["changes"] == [
        {"name": "gemm", "change": "kept", "fields": []}
    ]
    assert command("lock", f"gemm={SMALL}")["changes"][0]["change"] == "kept"
    assert lock_file().kernels[0].variants[0].record_key == first
    assert command("lock", "--upgrade")["changes"][0]["change"] == "moved"


def test_another_computation_of_the_name_takes_its_place(
    command: Command, store: Store, native: Target
) -> None:
    kept(store, SMALL, native)
    kept(store, OTHER, native)
    command("lock", f"gemm={SMALL}")
    assert command("lock", f"gemm={OTHER}")["changes"][0]["change"] == "moved"
    assert lock_file().kernels[0].workload == OTHER


def test_what_is_not_tuned_is_not_locked_unless_a_default_will_do(
    command: Command, store: Store
) -> None:
    assert "no exact answer stored" in str(command("lock", f"gemm={SMALL}", code=3))
    assert not Path("tilewright.lock.json").exists()
    (kernel,) = command("lock", f"gemm={SMALL}", "--min-grade", "default")["kernels"]
    assert (kernel["grade"], kernel["record_key"], kernel["run_secs"]) == ("default", None, None)
    assert command("lock", "--check")["up_to_date"]


def test_a_default_is_pinned_with_its_schedule(
    command: Command, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kernel,) = command("lock", f"gemm={SMALL}", "--min-grade", "default")["kernels"]
    assert kernel["trace"]
    command("fetch", "-o", "out")

    # Another version chooses another schedule, and the files are lost.
    monkeypatch.setattr(analytic, "default_schedule", lambda *_: analytic.Chosen(Trace()))
    monkeypatch.setattr(type(store), "blob", lambda self, sha256: None)
    command("fetch", "-o", "again")
    for name in ("gemm.o", "gemm.h"):
        assert Path("out", name).read_bytes() == Path("again", name).read_bytes()
    (change,) = command("lock", f"gemm={SMALL}", "--min-grade", "default")["changes"]
    assert (change["change"], "trace" in change["fields"]) == ("stale", True)


def test_a_kernel_for_many_cpus_takes_each_record_there_is(
    command: Command, store: Store, native: Target
) -> None:
    v3 = level_target("x86-64-v3")
    if not set(v3.features) <= set(native.features):
        pytest.skip("not an AVX2 machine")
    ours, theirs = kept(store, SMALL, native), kept(store, SMALL, v3)
    command("lock", f"gemm={SMALL}", "--cpu", "x86-64-v3,native")
    (kernel,) = lock_file().kernels
    assert [(v.cpu, v.grade, v.record_key) for v in kernel.variants] == [
        (native.cpu, "exact", ours), ("x86-64-v3", "exact", theirs), ("x86-64", "default", None),
    ]  # fmt: skip
    assert command("lock", "--check")["up_to_date"]
    command("fetch", "-o", "out")
    emitted = command(
        "emit", SMALL, "--name", "gemm", "--cpu", "x86-64-v3,native", "-o", "emitted", "--asm"
    )
    assert [v["record_key"] for v in emitted["variants"]] == [ours, theirs, None]
    assert emitted["variants"][-1]["needs"] == []
    for name in ("gemm.o", "gemm.h"):
        assert Path("out", name).read_bytes() == Path("emitted", name).read_bytes()
    assert Path("emitted/gemm.x86-64-v3.s").exists()


def test_files_that_are_lost_are_made_again_and_must_be_the_same(
    command: Command, store: Store, native: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(store, SMALL, native)
    command("lock", f"gemm={SMALL}")
    command("fetch", "-o", "out")
    monkeypatch.setattr(type(store), "blob", lambda self, sha256: None)
    command("fetch", "-o", "again")
    for name in ("gemm.o", "gemm.h"):
        assert Path("out", name).read_bytes() == Path("again", name).read_bytes()

    text = Path("tilewright.lock.json").read_text()
    forged = json.loads(text)
    forged["kernels"][0]["object"]["bytes"] = 1
    write_sealed(forged)
    assert "not_the_bytes" in str(command("fetch", "-o", "other", code=6))
    forged = json.loads(text)
    forged["kernels"][0]["object"]["sha256"] = "0" * 64
    write_sealed(forged)
    assert "not_the_bytes" in str(command("fetch", "-o", "other", code=6))
    assert not Path("other").exists()


def test_a_damaged_blob_is_never_written(
    command: Command, store: Store, native: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.db.values.records import Blob

    kept(store, SMALL, native)
    command("lock", f"gemm={SMALL}")
    monkeypatch.setattr(type(store), "blob", lambda self, sha256: Blob(sha256, "x/y", b"evil"))
    command("fetch", "-o", "out", code=6)
    assert not Path("out").exists()


def test_only_the_kernels_named_are_fetched(command: Command, store: Store, native: Target) -> None:
    kept(store, SMALL, native)
    kept(store, OTHER, native)
    command("lock", f"a={SMALL}", f"b={OTHER}")
    command("fetch", "-o", "out", "--kernel", "b")
    assert sorted(file.name for file in Path("out").iterdir()) == [
        "b.h", "b.o", "tilewright-kernels.pc",
    ]  # fmt: skip
    assert "locked kernels: a, b" in str(command("fetch", "-o", "out", "--kernel", "c", code=2))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["lock"], "no WORKLOAD"),
        (["lock", "--check", f"a={SMALL}"], "unchanged lock file"),
        (["lock", SMALL, OTHER], "two kernels are called matmul"),
        (["lock", f"printf={SMALL}"], "C library"),
        (["lock", f"a={SMALL}", "--cpu", "pentium"], "got 'pentium'"),
        (["lock", f"a={SMALL}", "--cpu", ","], "--cpu needs names"),
        (["lock", "a=nonsense:M=1"], "nonsense"),
        (["fetch", "-o", "out"], "no lock file"),
        (["fetch", "-o", "out", "--offline", "none.zip"], "no lock file"),
        (["export", "x.zip", "--bundle", "none.json"], "no lock file"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_line(
    command: Command, words: list[str], says: str
) -> None:
    assert says in str(command(*words, code=2))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(version=2), "version 1"),
        (lambda d: d.pop("kernels"), "'kernels' is missing"),
        (lambda d: d["kernels"][0].update(name="../evil"), "C name"),
        (lambda d: d["kernels"][0].pop("object"), "'object' is missing"),
        (lambda d: d["kernels"][0]["object"].update(sha256="zz"), "sha256"),
        (lambda d: d["kernels"][0].update(links=["evil"]), "links"),
        (lambda d: d["kernels"][0].update(links=3), "a: links: this version does not know 3"),
        (lambda d: d["kernels"][0].update(workload=7), "a: workload: must be text"),
        (lambda d: d["kernels"][0].update(workload_key="w"), "a: workload_key: must be 64 hex"),
        (lambda d: d["kernels"][0].update(threads=0), "a: threads: must be a whole number"),
        (lambda d: d["kernels"][0].update(threads=True), "a: threads: must be a whole number"),
        (
            lambda d: d["kernels"][0].update(grade="best"),
            "a: grade: must be one of exact, same-cpu",
        ),
        (
            lambda d: d["kernels"][0].update(record_key="sha256:0"),
            "record_key: must be sha256:HEX",
        ),
        (lambda d: d["kernels"][0].update(run_secs=-1.0), "a: run_secs: must be seconds"),
        (lambda d: d["kernels"][0].update(trace={}), "a: cpu must be text, and trace a list"),
        (
            lambda d: d["kernels"][0].update(toolchain={}),
            "a: toolchain: must have codegen, llvmlite",
        ),
        (lambda d: d["kernels"][0].update(variants=[]), "a: variants: must have at least two"),
        (lambda d: d["kernels"][0].update(variants=[7, 7]), "'record_key' is missing"),
        (lambda d: d["kernels"].append(d["kernels"][0]), "two kernels"),
        (lambda d: d.update(kernels=7), "not a lock file"),
        (lambda d: d["kernels"].insert(0, 7), "missing"),
    ],
)
def test_a_lock_file_that_will_not_do_is_refused(change: Callable[[Any], Any], says: str) -> None:
    variant = {"target_key": "0" * 64, "grade": "exact", "record_key": None, "run_secs": None}
    file = {"sha256": "0" * 64, "bytes": 1}
    kernel = {
        "name": "a", "workload": SMALL, "workload_key": "0" * 64, "threads": 1,
        "toolchain": {"codegen": 7, "llvmlite": "0.50.0", "llvm": "22.1.0"},
        "object": file, "header": file, **variant,
    }  # fmt: skip
    document = {"version": 1, "kernels": [kernel]}
    assert LockFile.from_text(json.dumps(document), "f").kernels[0].name == "a"
    change(document)
    with pytest.raises(LockError, match=says):
        LockFile.from_text(json.dumps(document), "f")


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "\x00", '{"version": NaN}', "[" * 99999])
def test_what_is_no_lock_file_is_refused(text: str) -> None:
    with pytest.raises(LockError):
        LockFile.from_text(text, "f")


FORGERIES: dict[str, Callable[[Any, Any], object]] = {
    "workload": lambda e, other: e.update(workload=other["workload"]),
    "workload and its key": lambda e, o: e.update(
        workload=o["workload"], workload_key=o["workload_key"]
    ),
    "workload_key": lambda e, other: e.update(workload_key=other["workload_key"]),
    "name": lambda e, other: e.update(name="evil"),
    "threads": lambda e, other: e.update(threads=2),
    "cpu": lambda e, other: e.update(cpu="znver1"),
    "grade": lambda e, other: e.update(grade="default"),
    "min_grade": lambda e, other: e.update(grade="compatible", min_grade="exact"),
    "record_key": lambda e, other: e.update(record_key=other["record_key"]),
    "an unknown record_key": lambda e, other: e.update(record_key="sha256:" + "0" * 64),
    "run_secs": lambda e, other: e.update(run_secs=1e-9),
    "no record": lambda e, other: e.update(record_key=None),
    "target_key": lambda e, other: e.update(target_key="0" * 64),
    "object": lambda e, other: e.update(object=other["object"]),
    "header": lambda e, other: e.update(header=other["header"]),
    "object and header": lambda e, o: e.update(object=o["object"], header=o["header"]),
    "all but the name": lambda e, other: e.update({**other, "name": e["name"]}),
    "codegen": lambda e, other: e["toolchain"].update(codegen=1),
    "llvm": lambda e, other: e["toolchain"].update(llvm="1.0.0"),
    "links": lambda e, other: e.update(links=["openmp"]),
    "variants": lambda e, other: e.update(variants=[{**other}, {**e}]),
    "trace": lambda e, other: e.update(trace=[]),
}
"""What somebody may exchange in an entry `e`, also for what another one has."""


@pytest.mark.parametrize("what", FORGERIES)
@pytest.mark.parametrize("sealed", ["as written", "sealed anew", "of an old version"])
def test_an_entry_of_which_a_field_was_exchanged_is_not_fetched(
    what: str, sealed: str, locked_pair: str, command: Command
) -> None:
    """Edited by hand, forged by somebody who knows the format, or without seals."""
    forged = json.loads(locked_pair)
    a, b = forged["kernels"]
    if sealed == "of an old version":
        del a[SEAL], b[SEAL]
    FORGERIES[what](a, b)
    if sealed == "sealed anew":
        write_sealed(forged)
    else:
        Path("tilewright.lock.json").write_text(json.dumps(forged))
    error = command("fetch", "-o", "out", code=6)["error"]
    assert error["code"] in ("inconsistent_lock", "not_the_bytes")
    assert "\n" not in error["message"]
    assert not list(Path().glob("out/*"))


@pytest.mark.parametrize("change", ["target", "an unknown target", "workload"])
def test_locked_takes_no_entry_whose_parts_contradict_each_other(
    change: str, locked_pair: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = json.loads(locked_pair)
    (key,) = forged["targets"]
    if change == "target":
        forged["targets"][key]["cpu"] = "znver1"
    elif change == "an unknown target":
        del forged["targets"][key]
    else:
        first, second = forged["kernels"]
        first["workload"] = second["workload"]
    write_sealed(forged)
    assert run(["lock", "--locked"]) == 6
    said = capsys.readouterr().err
    assert said.startswith("tilewright: tilewright.lock.json: ")
    assert "Traceback" not in said


@pytest.fixture
def locked_pair(command: Command, store: Store, native: Target) -> str:
    """A lock file of two kernels, whose objects and records are kept."""
    kept(store, SMALL, native)
    kept(store, OTHER, native, secs=2e-3)
    command("lock", f"a={SMALL}", f"b={OTHER}")
    return Path("tilewright.lock.json").read_text()


def test_files_of_one_kernel_after_another_are_all_in_the_metadata(
    locked_pair: str, command: Command
) -> None:
    for name in ("a", "b", "a"):
        command("fetch", "-o", "out", "--kernel", name)
    metadata = Path("out/tilewright-kernels.pc").read_text()
    assert "Libs: ${prefix}/a.o ${prefix}/b.o\n" in metadata
    Path("out/b.o").unlink()
    Path("out/mine.h").write_text("/* mine: by hand */")
    command("fetch", "-o", "out", "--kernel", "a")
    assert "Libs: ${prefix}/a.o\n" in Path("out/tilewright-kernels.pc").read_text()


def test_metadata_of_a_kernel_for_threads_asks_for_openmp(tmp_path: Path) -> None:
    for name, threads in (("one", "1."), ("two", "2, on OpenMP's runtime (link with -fopenmp).")):
        text = f"/* {name}: x, made by Tilewright.\n *\n * Threads: up to {threads}\n */"
        (tmp_path / f"{name}.h").write_text(text)
        (tmp_path / f"{name}.o").write_bytes(b"")
    assert kernels_in(tmp_path) == {"one": False, "two": True}
    assert "Libs: ${prefix}/one.o ${prefix}/two.o -fopenmp\n" in pkg_config(kernels_in(tmp_path))


PINNING = """
import sys
from contextlib import contextmanager
from dataclasses import replace
from tilewright.service.build.lock_file import LockedKernel
from tilewright.service.cli import locking, run
import json
entry, target = json.loads(sys.argv[3])
class Builder:
    def build(self, asked):
        return replace(LockedKernel.from_json(entry), name=asked["name"]), target
    def keep(self, store, kernel):
        pass
@contextmanager
def builder(where, common):
    yield Builder()
locking._builder = builder
for number in range(int(sys.argv[2])):
    assert run(["lock", f"{sys.argv[1]}{number}=matmul:M=8,N=8,K=8"]) == 0
"""


def test_pins_of_commands_at_once_are_all_kept(locked_pair: str, tmp_path: Path) -> None:
    """Two programs that lock kernel after kernel into one file."""
    document = json.loads(locked_pair)
    given = json.dumps([document["kernels"][0], document["targets"]])
    file = tmp_path / "tilewright.lock.json"
    file.unlink()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PINNING, name, str(PAIRS), given],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
        )
        for name in ("left", "right")
    ]
    assert [process.wait(120 * TIMES) for process in started] == [0, 0]
    wanted = {f"{name}{number}" for name in ("left", "right") for number in range(PAIRS)}
    assert {kernel.name for kernel in lock_file().kernels} == wanted


def test_files_fetched_at_once_are_all_in_the_metadata(locked_pair: str, tmp_path: Path) -> None:
    lock = lock_file()
    folder = tmp_path / "out"

    def fetch(name: str) -> None:
        header = f"/* {name}: x, made by Tilewright.\n */".encode()
        write(
            [OutputFile("object", f"{name}.o", b""), OutputFile("header", f"{name}.h", header)],
            folder,
        )

    names = [f"k{number}" for number in range(PAIRS)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fetch, names))
    assert set(kernels_in(folder)) == set(names)
    metadata = (folder / "tilewright-kernels.pc").read_text()
    assert all(f"${{prefix}}/{name}.o" in metadata for name in names)
    assert lock == lock_file()


def test_a_lock_file_behind_a_link_is_written_where_it_is(
    locked_pair: str, command: Command
) -> None:
    Path("elsewhere").mkdir()
    Path("tilewright.lock.json").rename("elsewhere/it.json")
    Path("tilewright.lock.json").symlink_to("elsewhere/it.json")
    command("lock", f"c={SMALL}")
    assert Path("tilewright.lock.json").is_symlink()
    assert [kernel.name for kernel in lock_file().kernels] == ["a", "b", "c"]
