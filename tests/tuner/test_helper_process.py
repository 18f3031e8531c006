"""Work with a deadline in a process of its own: answers, typed failures, a new process after."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.frontend.notation import from_notation
from tilewright.tuner.compiling.deadline import DeadlineError, alarm
from tilewright.tuner.compiling.deadline_compile import assembly_by_deadline, emit_by_deadline
from tilewright.tuner.compiling.helper_process import CompileError, HelperProcess
from tilewright.tuner.emit.kernel import generated
from tilewright.tuner.emit.object_code import emit_assembly, emit_object
from tilewright.tuner.machine.native_target import native_target
from tilewright.tuner.process.frames import Frame
from tilewright.tuner.search.default import default_trace

HERE = "tests.tuner.test_helper_process:"


def echo(document: dict[str, Any]) -> Frame:
    return Frame({"pid": os.getpid(), **document})


def sleep(document: dict[str, Any]) -> Frame:
    time.sleep(60)
    return Frame({})


def end(document: dict[str, Any]) -> Frame:
    os._exit(7)


def ask_another(document: dict[str, Any]) -> Frame:
    """A helper of this helper, which has taken up room meanwhile."""
    kept = bytearray(document["bytes"])
    told = HelperProcess().call(HERE + "echo", {}, "asking a helper of a helper")
    return Frame({"pid": told.document["pid"], "kept": len(kept)})


def refuse(document: dict[str, Any]) -> Frame:
    raise WorkloadError("not this one", code="made_up")


def bug(document: dict[str, Any]) -> Frame:
    raise KeyError("ours")


@pytest.fixture
def aside() -> Iterator[HelperProcess]:
    helper = HelperProcess()
    yield helper
    helper.close()


def test_what_is_late_is_ended_and_the_next_call_is_answered(aside: HelperProcess) -> None:
    first = aside.call(HERE + "echo", {"x": 1}, "an echo").document
    assert first["x"] == 1
    with pytest.raises(DeadlineError, match=r"a nap took longer than 0.1 s"):
        aside.call(HERE + "sleep", {}, "a nap", 0.1)
    again = aside.call(HERE + "echo", {}, "an echo").document
    assert again["pid"] != first["pid"]


def test_a_helper_may_have_a_helper_of_its_own(aside: HelperProcess) -> None:
    """The first one's memory is limited, and with it that of all it starts."""
    for size in (0, 1 << 28):
        told = aside.call(HERE + "ask_another", {"bytes": size}, "asking").document
        assert told["kept"] == size
        assert told["pid"] != os.getpid()


def test_a_helper_starts_where_memory_is_limited_already() -> None:
    code = (
        "import resource; most = 3 << 30; resource.setrlimit(resource.RLIMIT_AS, (most, most));"
        "from tilewright.tuner.compiling.helper_process import HelperProcess;"
        f"answer = HelperProcess().call({HERE + 'echo'!r}, {{'said': 'yes'}}, 'asking');"
        "print(answer.document['said'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "yes\n", done.stderr


def test_failures_keep_their_type(aside: HelperProcess) -> None:
    with pytest.raises(WorkloadError, match="not this one") as found:
        aside.call(HERE + "refuse", {}, "a check")
    assert found.value.code == "made_up"
    with pytest.raises(RuntimeError, match="our own code"):
        aside.call(HERE + "bug", {}, "a check")
    with pytest.raises(CompileError, match="code 7"):
        aside.call(HERE + "end", {}, "a crash")


def test_who_waits_for_a_turn_waits_no_longer_than_its_deadline(aside: HelperProcess) -> None:
    aside.call(HERE + "echo", {}, "an echo")
    with aside._turn:  # as another call has it
        for secs in (0.05, 0.0):
            with pytest.raises(DeadlineError):
                aside.call(HERE + "echo", {}, "an echo", secs)
    aside.call(HERE + "echo", {}, "an echo")


def test_an_alarm_ends_work_of_this_thread_and_leaves_no_trace() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(DeadlineError, match="a nap"), alarm(0.01, "a nap"):
        time.sleep(60)
    with alarm(60.0, "nothing"):
        pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0


def test_large_modules_are_compiled_aside_to_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workload = from_notation("S[i] = A[i] + 1.0", {"A": ("f32", (32,))})
    target = native_target(probe=False)
    text = generated(workload, default_trace(workload, target), target).text
    monkeypatch.setattr("tilewright.tuner.compiling.deadline_compile.MAX_INLINE_LINES", 0)
    assert emit_by_deadline(text, target) == emit_object(text, target)
    assert assembly_by_deadline(text, target) == emit_assembly(text, target)
    with pytest.raises(CompileError, match="LLVM refuses"):
        emit_by_deadline("define nonsense\n", target)
