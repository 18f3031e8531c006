"""Threads of tasks that wait for other machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from threading import Lock

from ..process.control import Control

MAX_THREADS = 64
"""The searches of all tasks compute in one process, which cannot keep more machines busy."""


class Abandoned(BaseException):
    """Ends the work of a thread after an exception in another one. A BaseException, so that nothing
    handles it as a failure of the task, and no function of the caller is called after it."""


class TaskThreads:
    """Threads of which one runs at a time: the others are in `elsewhere` blocks.

    So what tasks share needs no other lock, and the functions of the caller are never called at the
    same time. The thread that makes the object runs first.
    """

    def __init__(self) -> None:
        self._running = Lock()
        self._running.acquire()
        self._pool = ThreadPoolExecutor(MAX_THREADS, "tilewright-task")
        self._at_work: dict[Future[None], Control] = {}
        self._is_abandoned = False

    @property
    def at_work(self) -> list[Control]:
        """The controls of the tasks whose work was started, and has not been waited for."""
        return list(self._at_work.values())

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Let the other threads run during the block. Raise Abandoned after it if `end` was
        called."""
        self._running.release()
        try:
            yield
        finally:
            self._running.acquire()
            if self._is_abandoned:
                raise Abandoned

    def start(self, control: Control, work: Callable[[], None]) -> None:
        """Do `work` in a thread, from the next `elsewhere` block of this thread on. `control` is
        that of its task."""

        def run() -> None:
            with self._running:
                if not self._is_abandoned:
                    work()

        self._at_work[self._pool.submit(copy_context().run, run)] = control

    def wait(self) -> None:
        """Wait until a thread has ended its work. Raise its exception."""
        with self.elsewhere():
            ended, _ = wait(self._at_work, return_when=FIRST_COMPLETED)
        for future in ended:
            del self._at_work[future]
        for future in ended:
            future.result()

    def end(self) -> None:
        """Abort the tasks that are at work, and wait until all threads have ended."""
        self._is_abandoned = True
        for control in self.at_work:
            control.abort()
        self._running.release()
        try:
            self._pool.shutdown(cancel_futures=True)
        finally:
            self._running.acquire()
            self._at_work.clear()
            self._is_abandoned = False
