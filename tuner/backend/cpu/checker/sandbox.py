"""Execution of untrusted code in a forked child, which may crash, hang or take too much memory."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from .... import timeouts
from ....process import linux
from ....process.frames import Frame, FrameReader, write_frame
from ..loading.native import FAULT_EXIT_CODE

_BUG_EXIT_CODE = 70
_MEMORY_EXIT_CODE = 71
_STACK_BYTES = 64 << 10
_FAULT_SIGNALS = (
    signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT,
)  # fmt: skip
_READY = Frame({"ready": True})  # the first frame of every child

Send: TypeAlias = Callable[[Frame], None]


@dataclass(frozen=True, slots=True)
class Parent:
    """The parent, as seen by a child."""

    send: Send
    """Send a frame, which the parent handles immediately."""
    note: Send
    """Store a frame, which the parent reads after the end of the child. This wakes no process."""
    be_alone: Callable[[], object]
    """Wait until other work of this program has ended."""


Body: TypeAlias = Callable[[Parent], None]
Work: TypeAlias = Callable[[bytes, Parent], None]
Start: TypeAlias = Callable[[], Work]
"""Called in a child before it gets its task."""


class ChildExit(StrEnum):
    """The ways in which a child ends."""

    DONE = "done"
    SIGNAL = "signal"
    DEADLINE = "deadline"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Resource limits of a child."""

    deadline_secs: float
    """The wall time until the next frame `{"case": ...}` of the child. CPU time is limited to this
    on `threads` cores for each of `cases`."""
    memory_bytes: int
    """The limit of resident memory in addition to the inherited memory. The child may reserve four
    times as much address space."""
    reserved_bytes: int = 0
    """Further address space that the child may reserve."""
    threads: int = 1
    cpus: Sequence[int] = ()
    """The CPUs that it may use. Empty means any CPU."""
    cases: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """The way in which a child ended, and the frames that it sent."""

    ending: ChildExit
    frames: tuple[Frame, ...]
    notes: tuple[Frame, ...]
    """The frames that it stored. Empty unless a signal ended it."""
    secs: float
    """The wall time from fork to exit."""
    fork_secs: float
    signal_name: str = ""
    """"SIGSEGV" or similar for `ChildExit.SIGNAL`."""
    fault_address: int | None = None
    """For `ChildExit.SIGNAL`, the address of the access, or None if it is unknown."""


class ParentGoneError(Exception):
    """The client process has ended, so no process reads the result."""


class FaultPage:
    """A page shared with children, in which the native fault handler reports a fault."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._words = (ctypes.c_int64 * 4).from_buffer(self._memory)

    @property
    def address(self) -> int:
        return ctypes.addressof(self._words)

    def clear(self) -> None:
        for i in range(4):
            self._words[i] = 0

    @property
    def signal(self) -> int:
        return self._words[0]

    @property
    def fault_address(self) -> int | None:
        """The address of the access. It is None if `kill` or similar sent the signal (code <=
        0)."""
        return self._words[2] % (1 << 64) if self._words[1] > 0 else None

    @property
    def memory_exhausted(self) -> bool:
        return bool(self._words[3])


@dataclass(frozen=True, slots=True)
class _ChildFiles:
    """Files in memory, as descriptors: the standard error of a child, and its notes."""

    errors: int
    notes: int

    def read_notes(self) -> tuple[Frame, ...]:
        os.lseek(self.notes, 0, os.SEEK_SET)
        reader, found = FrameReader(self.notes), list[Frame]()
        while (frame := reader.read_frame()) is not None:
            found.append(frame)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class _Child:
    """A forked child that waits for its task, as seen by its parent. All numbers but `pid` are
    descriptors."""

    pid: int
    ended: int
    """Becomes readable when the child ends."""
    tasks: int
    receive: int
    hold: int
    """A byte in this pipe signals that no other work runs."""
    files: _ChildFiles
    fork_secs: float

    def close(self) -> None:
        for fd in (self.ended, self.receive, self.hold, self.files.errors, self.files.notes):
            os.close(fd)


class Sandbox:
    """Runs functions in forked children. The process must have a single thread.

    `fault_handler` is the address of the native handler, which reports faults in `page`.
    `lifeline` is a descriptor that closes when the client process ends, or -1.

    One task runs at a time. The next child is forked while it runs, and ends of children are not
    awaited: forking, setting up and unmapping take as long as the checks of a small kernel.
    """

    def __init__(self, page: FaultPage, fault_handler: int, lifeline: int = -1) -> None:
        self._page = page
        self._fault_handler = fault_handler
        self._lifeline = lifeline
        self._stack = ctypes.create_string_buffer(_STACK_BYTES)
        self._spare: _Child | None = None
        self._leaving: _Child | None = None

    def run(
        self, body: Body, limits: ResourceLimits, is_alone: Callable[[], bool] | None = None
    ) -> Outcome:
        """Run `body(parent)` in a new child and wait for its end, at most until the deadline.

        In the child, `parent.be_alone` waits until `is_alone` returns true and no other child of
        this sandbox works. The time of waiting does not count towards the deadline. If `is_alone`
        is None, there is no other work.

        The frames that the child sent before a crash are returned too. Raise RuntimeError if `body`
        raised an error, which is a bug of this program and never a fault of the candidate. Raise
        ParentGoneError if the client process has ended.
        """
        self.discard_spare()
        child = self._fork(lambda: lambda task, parent: body(parent))
        return self._run(child, b"", limits, is_alone)

    def run_task(self, start: Start, task: bytes, limits: ResourceLimits) -> Outcome:
        """Run `start()(task, parent)` in a child, as `run` does. The child may have been forked
        during the last call, so `start` is that of the last call, and sees its state of this
        process. After a change of this state, call `discard_spare`."""
        child, self._spare = self._spare or self._fork(start), None
        return self._run(child, task, limits, fork_next=start)

    def discard_spare(self) -> None:
        """End the child that was forked for the next task."""
        if self._spare is not None:
            _kill_and_reap(self._spare.pid)
            os.close(self._spare.tasks)
            self._spare.close()
            self._spare = None

    def _fork(self, start_work: Start) -> _Child:
        receive, send = os.pipe()
        quiet, hold = os.pipe()
        tasks_in, tasks = os.pipe()
        files = _ChildFiles(os.memfd_create("child-errors"), os.memfd_create("child-notes"))
        start = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            os.close(receive)
            os.close(hold)
            os.close(tasks)
            parent = Parent(
                send=lambda frame: write_frame(send, frame),
                note=lambda frame: write_frame(files.notes, frame),
                be_alone=lambda: os.read(quiet, 1),
            )
            self._live(start_work, parent, tasks_in, files)
        fork_secs = time.perf_counter() - start
        for fd in (send, quiet, tasks_in):
            os.close(fd)
        return _Child(pid, os.pidfd_open(pid), tasks, receive, hold, files, fork_secs)

    def _live(  # never returns
        self, start: Start, parent: Parent, tasks: int, files: _ChildFiles
    ) -> None:
        status = _BUG_EXIT_CODE
        try:
            parent_pid = os.getppid()
            os.setpgid(0, 0)
            linux.die_with_parent(parent_pid)
            os.dup2(files.errors, 2)
            stack = (ctypes.addressof(self._stack), _STACK_BYTES)
            sys.unraisablehook = _end_unraisable
            linux.handle_faults(self._fault_handler, tuple(_FAULT_SIGNALS), stack)
            work = start()
            parent.send(_READY)
            frame = FrameReader(tasks).read_frame()
            if frame is not None:
                _apply(ResourceLimits(**frame.document))
                work(frame.blob, parent)
            status = 0
        except MemoryError:
            status = _MEMORY_EXIT_CODE
        finally:
            if status == _BUG_EXIT_CODE:
                traceback.print_exc()
                sys.stderr.flush()
            os._exit(status)

    def _run(
        self,
        child: _Child,
        task: bytes,
        limits: ResourceLimits,
        is_alone: Callable[[], bool] | None = None,
        fork_next: Start | None = None,
    ) -> Outcome:
        """Give `task` to `child`, and watch it. Fork the next child if `fork_next` is given."""
        self._page.clear()
        start = time.perf_counter()
        with suppress(
            BrokenPipeError
        ):  # the child ended during its set-up, which is reported below
            write_frame(child.tasks, Frame(asdict(limits), task))
        os.close(child.tasks)
        others = []
        if fork_next is not None:
            self._spare = self._fork(fork_next)
            others.append(self._spare.receive)
        if self._leaving is not None:
            _kill(self._leaving.pid)
            others.append(self._leaving.ended)
        return self._watch(child, limits, others, is_alone, start)

    def _leave(self, child: _Child) -> None:
        """Let `child`, whose work is done, end by itself. Reap the one before it."""
        if self._leaving is not None:
            _kill_and_reap(self._leaving.pid)
            self._leaving.close()
        self._leaving = child

    def _watch(
        self,
        child: _Child,
        limits: ResourceLimits,
        others: list[int],
        is_alone: Callable[[], bool] | None,
        start: float,
    ) -> Outcome:
        """Return the outcome of `child`, which may be alone when each of `others` is readable."""
        counted_from, alone = start, False
        os.set_blocking(child.receive, False)
        reader = FrameReader(child.receive)
        frames: list[Frame] = []
        ending: ChildExit | None = None
        poller = select.poll()
        for fd in (child.ended, child.receive, *others):
            poller.register(fd, select.POLLIN)
        if self._lifeline >= 0:
            poller.register(self._lifeline, 0)  # POLLHUP and POLLERR are always reported
        base_bytes = linux.resident_bytes(os.getpid())
        while True:
            ready = dict(poller.poll(timeouts.CHILD_POLL_SECS * 1000))
            if child.receive in ready:
                new = [frame for frame in reader.read_some() if frame != _READY]
                frames += new
                if any("case" in frame.document for frame in new):
                    counted_from = time.perf_counter()
                if any("status" in frame.document for frame in new):
                    secs = time.perf_counter() - start
                    self._leave(child)
                    done = ChildExit.DONE
                    return Outcome(done, tuple(frames), (), secs, child.fork_secs)
                if reader.ended:
                    poller.unregister(child.receive)
            if child.ended in ready:
                break
            if self._lifeline in ready:
                _kill_and_reap(child.pid)
                child.close()
                raise ParentGoneError
            for fd in [fd for fd in others if fd in ready]:
                others.remove(fd)
                poller.unregister(fd)
            if not alone:
                counted_from = time.perf_counter()
                alone = not others and (is_alone is None or is_alone())
                if alone:
                    with suppress(BrokenPipeError):  # the child has ended without waiting
                        os.write(child.hold, b".")
            if time.perf_counter() - counted_from > limits.deadline_secs:
                ending = ChildExit.DEADLINE
            elif linux.resident_bytes(child.pid) > base_bytes + limits.memory_bytes:
                ending = ChildExit.MEMORY
            if ending:
                break
        exit_code = _kill_and_reap(child.pid)
        while not reader.ended and (more := reader.read_some()):
            frames += more
        text = os.pread(child.files.errors, 1 << 16, 0).decode(errors="replace")
        notes = child.files.read_notes()
        child.close()
        if ending is None and exit_code == _BUG_EXIT_CODE:
            raise RuntimeError(f"the measuring child failed in our own code:\n{text}")
        secs = time.perf_counter() - start
        partial = Outcome(ChildExit.DONE, tuple(frames), (), secs, child.fork_secs)
        outcome = self._outcome(partial, ending, exit_code)
        return replace(outcome, notes=notes) if outcome.ending is ChildExit.SIGNAL else outcome

    def _outcome(self, done: Outcome, ending: ChildExit | None, exit_code: int) -> Outcome:
        """Return `done`, or a copy of it with another `ending` if the child ended differently."""
        if ending is not None:
            return replace(done, ending=ending)
        if exit_code == 0:
            return done
        faulted = exit_code == FAULT_EXIT_CODE
        number = self._page.signal if faulted else -exit_code
        exhausted = faulted and self._page.memory_exhausted
        if exit_code == _MEMORY_EXIT_CODE or exhausted or number == signal.SIGKILL:
            # If this process did not send the SIGKILL, the kernel's out-of-memory killer sent it.
            return replace(done, ending=ChildExit.MEMORY)
        if number == signal.SIGXCPU:
            return replace(done, ending=ChildExit.DEADLINE)
        name = signal.Signals(number).name if number > 0 else f"exit code {exit_code}"
        address = self._page.fault_address if faulted else None
        return replace(done, ending=ChildExit.SIGNAL, signal_name=name, fault_address=address)


def _apply(limits: ResourceLimits) -> None:
    space_bytes = linux.address_space_bytes() + 4 * limits.memory_bytes + limits.reserved_bytes
    linux.limit_address_space(space_bytes)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    cpu_secs = int(limits.deadline_secs * limits.threads * limits.cases) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_secs, cpu_secs + 1))
    if limits.cpus:
        os.sched_setaffinity(0, limits.cpus)


def _end_unraisable(error: sys.UnraisableHookArgs) -> None:
    """End the child on an exception in a callback from native code, which cannot propagate."""
    if isinstance(error.exc_value, MemoryError):
        os._exit(_MEMORY_EXIT_CODE)
    traceback.print_exception(error.exc_value)
    sys.stderr.flush()
    os._exit(_BUG_EXIT_CODE)


def _kill(pid: int) -> None:
    """Kill a child that was not reaped, and its process group."""
    for kill in (os.killpg, os.kill):
        # The group does not exist yet if the child was stopped before it created the group.
        with suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def _kill_and_reap(pid: int) -> int:
    """Kill a child and its process group. Return its exit code as `subprocess` defines it."""
    _kill(pid)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
