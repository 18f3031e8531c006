"""Where memory, files or threads run out a command says so in a line, with exit code 1."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.service.records import MATMUL
from tilewright.schedules.errors import TargetError
from tilewright.service.cli import root
from tilewright.service.errors import OutOfResources
from tilewright.service.resource_exhaustion import exhausted_resource

MIB = 1 << 20
TOLD = ("tilewright: ", "OpenBLAS error: Memory allocation")
"""OpenBLAS ends the process itself where it finds no memory when it is loaded."""
LIMITS = {"-v": (resource.RLIMIT_AS, MIB), "-n": (resource.RLIMIT_NOFILE, 1)}
COMMANDS = {
    "ops": ["ops"],
    "best": ["best", MATMUL],
    "target": ["target"],
    "tune": ["tune", MATMUL, "--trials", "1"],
    "verify": ["verify", MATMUL],
    "doctor": ["doctor"],
    "emit": ["emit", MATMUL, "-o", "out", "--min-grade", "default"],
    "lock": ["lock", f"k={MATMUL}", "--min-grade", "default"],
    "check": ["db", "check"],
}


@pytest.mark.parametrize(
    ("name", "flag", "most"),
    [
        *((name, "-v", 90) for name in COMMANDS),
        ("tune", "-v", 250),
        ("tune", "-v", 500),
        ("emit", "-v", 200),
        *((name, "-n", 12) for name in COMMANDS),
        ("tune", "-n", 20),
        ("target", "-n", 8),
        ("ops", "-n", 6),
    ],
)
def test_a_limit_is_told_in_a_line_and_never_by_a_traceback(
    name: str, flag: str, most: int, tmp_path: Path
) -> None:
    """What runs out it may meet anywhere: while libraries are imported, in a process of its own."""
    limit, unit = LIMITS[flag]

    def limited() -> None:
        resource.setrlimit(limit, (most * unit, most * unit))

    places = {n: str(tmp_path) for n in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "TMPDIR")}
    done = subprocess.run(
        [sys.executable, "-c", "from tilewright.service.cli import main; main()", *COMMANDS[name]],
        cwd=tmp_path,
        env={**os.environ, **places, "PYTHONPATH": str(ROOT), "TILEWRIGHT_DB": ""},
        preexec_fn=limited,  # no threads here
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "Exception" not in done.stderr, done.stderr
    assert done.returncode in (0, 1, 3, 4), (done.returncode, done.stderr)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "waiting for the machine" not in line]
        said = [line for line in lines if line.startswith(TOLD)]
        assert len(said) == 1, done.stderr


def made(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "memory"),
        (OSError(errno.EMFILE, "Too many open files"), "open files"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "threads"),
        (RuntimeError("can't start new thread"), "threads"),
        (ImportError("libx.so: failed to map segment from shared object"), "memory"),
        (made(ImportError("read this"), OSError("x: cannot allocate memory in TLS")), "memory"),
        (RuntimeError("the runner ended: MemoryError: no room for 7 bytes"), "memory"),
        (TargetError("probing: OSError: [Errno 12] Cannot allocate memory"), "memory"),
    ],
)
def test_what_has_run_out_is_read_from_errors(error: Exception, says: str) -> None:
    found = exhausted_resource(error)
    assert found is not None
    assert says in str(found)
    assert "\n" not in str(found)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOENT, "No such file"),
        RuntimeError("a bug"),
        ImportError("no module named that"),
        TargetError("a name: out of memory"),
    ],
)
def test_other_errors_are_left_to_be_what_they_are(error: Exception) -> None:
    assert exhausted_resource(error) is None


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (MemoryError, 1),
        (lambda: OSError(errno.EMFILE, "x"), 1),
        (lambda: RuntimeError("a bug"), None),
    ],
)
def test_a_command_ends_by_what_has_run_out(
    raised: Callable[[], Exception],
    code: int | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run_quickly(arguments: object) -> bool:
        raise raised()

    monkeypatch.setattr(root, "run_quickly", run_quickly)
    if code is None:
        with pytest.raises(RuntimeError, match="a bug"):
            root.run(["ops"])
        return
    assert root.run(["ops"]) == code
    assert capsys.readouterr().err.startswith("tilewright: ")


def test_the_limit_is_named_with_the_way_to_raise_it(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = resource.RLIM_INFINITY
    for limits, says in (
        ((512 * MIB, unlimited), "512 MiB of memory"),
        ((unlimited,) * 2, "not have enough"),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=limits: limits)
        found = exhausted_resource(MemoryError())
        assert isinstance(found, OutOfResources)
        assert says in str(found)
