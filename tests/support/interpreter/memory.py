"""The interpreter's memory: elements that know whether they were written, and by whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.support.interpreter.arithmetic import Value
from tilewright.schedules.algebra.affine import Affine
from tilewright.schedules.nest.loop_ir import Buffer, For

SEVERAL = -1
"""Stands for more than one iteration where an iteration is asked for."""


class InterpretError(Exception):
    """The nest did what no correct nest does. A bug of ours, so no child of TilewrightError."""


@dataclass(slots=True, eq=False)
class Iterations:
    """Notices when two iterations of `loop` touch an element and one of them writes it.

    `written` are the buffers the loop writes. `current` is the value of the loop's variable. An
    access is made by `who`: an iteration, or below `SEVERAL` the lanes of one leaf together.
    """

    loop: For
    written: frozenset[str]
    current: int = 0
    writers: dict[tuple[str, int], int] = field(default_factory=dict)
    readers: dict[tuple[str, int], int] = field(default_factory=dict)

    def start(self) -> None:
        """Forget the last run of the loop."""
        self.writers.clear()
        self.readers.clear()

    def reads(self, buffer: Buffer, flat: int, who: int) -> None:
        element = (buffer.name, flat)
        if self.writers.get(element, who) != who:
            self._fail(buffer, flat, f"read by {_text(who)}", "written", self.writers[element])
        if self.readers.setdefault(element, who) != who:
            self.readers[element] = SEVERAL

    def writes(self, buffer: Buffer, flat: int, who: int) -> None:
        element = (buffer.name, flat)
        if self.writers.setdefault(element, who) != who:
            self._fail(buffer, flat, f"written by {_text(who)}", "written", self.writers[element])
        if self.readers.get(element, who) != who:
            self._fail(buffer, flat, f"written by {_text(who)}", "read", self.readers[element])

    def _fail(self, buffer: Buffer, flat: int, done: str, before: str, other: int) -> None:
        raise InterpretError(
            f"iterations of the {self.loop.kind} loop {self.loop.var} depend on each other: "
            f"{element_text(buffer, flat)} is {done} and was {before} by {_text(other)}"
        )


def _text(who: int) -> str:
    if who == SEVERAL:
        return "several iterations"
    return f"iteration {who}" if who >= 0 else "a reduction over all iterations"


Watch: TypeAlias = tuple[Iterations, int | None]
"""A loop that watches an access, and who makes it; None is the loop's current iteration."""


@dataclass(frozen=True, slots=True)
class BufferView:
    """Where a buffer is: its elements are `memory.cells[number]`. Inputs are read-only."""

    buffer: Buffer
    number: int
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class InterpreterMemory:
    """`cells[number][flat]` is an element of a buffer in row-major order; None: never written."""

    cells: list[list[Value]] = field(default_factory=list)

    def add(self, buffer: Buffer, *, read_only: bool = False) -> BufferView:
        """A place for `buffer`, without contents."""
        self.cells.append([None] * buffer.elements)
        return BufferView(buffer, len(self.cells) - 1, read_only)

    def reader(self, place: BufferView, watches: tuple[Watch, ...]) -> Callable[[int], Value]:
        """A function that gives the element at a flat index."""
        cells, number, buffer = self.cells, place.number, place.buffer

        def read(flat: int) -> Value:
            value = cells[number][flat]
            if value is None:
                raise InterpretError(f"{element_text(buffer, flat)} is read before it is written")
            return value

        def read_watched(flat: int) -> Value:
            for loop, who in watches:
                loop.reads(buffer, flat, loop.current if who is None else who)
            return read(flat)

        return read_watched if watches else read

    def writer(self, place: BufferView, watches: tuple[Watch, ...]) -> Callable[[int, Value], None]:
        """A function that sets the element at a flat index."""
        cells, number, buffer = self.cells, place.number, place.buffer
        if place.read_only:
            raise InterpretError(f"{buffer.name} is an input; inputs are never written")

        def write(flat: int, value: Value) -> None:
            cells[number][flat] = value

        def write_watched(flat: int, value: Value) -> None:
            for loop, who in watches:
                loop.writes(buffer, flat, loop.current if who is None else who)
            cells[number][flat] = value

        return write_watched if watches else write


def element_text(buffer: Buffer, flat: int) -> str:
    """The element at flat index `flat`, as `name[i, j]`."""
    index: list[int] = []
    for extent in reversed(buffer.shape):
        flat, i = divmod(flat, extent)
        index.append(i)
    return f"{buffer.name}[{', '.join(map(str, reversed(index)))}]"


def out_of_bounds(buffer: Buffer, index: tuple[Affine, ...], values: list[int]) -> InterpretError:
    """The error for an access at `values`, which `index` is where it happened."""
    written = ", ".join(map(str, index))
    return InterpretError(
        f"{buffer.name}[{written}] is out of bounds: its index is {values}, "
        f"the shape of {buffer.name} is {list(buffer.shape)}"
    )
