"""The machine's lock: one holder, and it comes free with the holder's death."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tilewright.tuner.machine.machine_lock import lock_path, machine_lock

HOLDER = """
import sys, time
from pathlib import Path
from tilewright.tuner.machine.machine_lock import machine_lock
with machine_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_holder_waits_until_the_first_dies(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        got = threading.Event()

        def wait() -> None:
            with machine_lock(path):
                got.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        assert not got.wait(0.2)
        os.kill(holder.pid, signal.SIGKILL)
        waiter.join(60)
        assert got.is_set()


def test_everybody_may_use_the_file(tmp_path: Path) -> None:
    with machine_lock(tmp_path / "lock"):
        pass
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o666


def test_the_lock_does_not_move_with_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lock_path()
    monkeypatch.chdir(tmp_path)
    assert lock_path() == first
    assert first.is_absolute()
    assert first.parent.is_dir()
