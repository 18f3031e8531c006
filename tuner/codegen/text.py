"""Write functions as LLVM IR text, with hoisting of invariant code.

A function is written in order, but pure arithmetic is placed at the outermost level where its
operands are defined: every open loop or branch is an `OpenBlock` with a list of lines before it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .overlap import Lines, Statements, flat, in_order
from .transposing import Transposed
from .values import Val


@dataclass(slots=True)
class OpenBlock:
    """An open loop or branch. `before` are the lines in front of it; `writes` are the buffers
    written in it. Caches: `memo` of pure values computed in it, `loaded` of values read from
    memory, and `transposed` of register blocks read by columns; a write to the buffer invalidates
    the last two."""

    before: Lines
    writes: frozenset[str] = frozenset()
    memo: dict[Hashable, Val] = field(default_factory=dict)
    loaded: dict[Hashable, Val] = field(default_factory=dict)
    transposed: dict[tuple[str, tuple[int, ...]], Transposed] = field(default_factory=dict)


class FunctionText:
    """One function being written. `level` 0 is its entry; loops and branches open more."""

    def __init__(self) -> None:
        self.allocas: Lines = []
        self.lines: Lines = []
        self.here: Lines = self.lines
        self.levels: list[OpenBlock] = [OpenBlock(self.lines)]
        self.block = "entry"
        self.statements: Statements | None = None
        self._count = 0

    @property
    def depth(self) -> int:
        return len(self.levels) - 1

    def new(self, hint: str = "v") -> str:
        """A new register name."""
        self._count += 1
        return f"%{hint}{self._count}"

    def label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def at(self, level: int) -> Lines:
        """The lines to which code of `level` is appended."""
        return self.here if level >= self.depth else self.levels[level + 1].before

    def add(self, line: str, level: int | None = None) -> None:
        (self.here if level is None else self.at(level)).append(line)

    def assign(self, expression: str, hint: str = "v", level: int | None = None) -> str:
        """Write `%new = expression` and give the new name."""
        name = self.new(hint)
        self.add(f"  {name} = {expression}", level)
        return name

    def start_block(self, label: str) -> None:
        self.here.append(f"{label}:")
        self.block = label

    def open_level(self, writes: frozenset[str] = frozenset()) -> OpenBlock:
        """Open a new level at this point; hoisted code is written in front of it."""
        before: Lines = []
        self.here.append(before)
        level = OpenBlock(before, writes)
        self.levels.append(level)
        return level

    @contextmanager
    def outside(self, level: int) -> Iterator[None]:
        """Write values (no branches) at `level`, as if it were the innermost. That position is
        inside of a statement, in front of a loop or branch of it, so a statement of a sequence
        cannot be divided there.
        """
        if level >= self.depth:
            yield
            return
        here, levels, statements = self.here, self.levels, self.statements
        self.here, self.levels, self.statements = self.at(level), levels[: level + 1], None
        yield
        self.here, self.levels, self.statements = here, levels, statements

    def close_level(self) -> None:
        self.levels.pop()

    def alloca(self, type_: str, align: int) -> str:
        """A stack slot in the entry block; slots of single values become registers later."""
        name = self.new("slot")
        self.allocas.append(f"  {name} = alloca {type_}, align {align}")
        return name

    @contextmanager
    def sequence(self, writes: frozenset[str], registers: int) -> Iterator[None]:
        """Context in which statements form a sequence, so that first halves of their chains may be
        emitted early; `writes` are all buffers they write."""
        if self._sequence() is not None:  # already inside of a longer sequence
            yield
            return
        here, outer = self.here, self.statements
        self.statements = Statements(self.depth, writes)
        self.here = self.statements.pieces[-1].lines
        yield
        here.extend(in_order(self.statements.pieces, registers))
        self.here, self.statements = here, outer

    def begin_statement(self, reads: frozenset[str] | None) -> None:
        """The next statement of a sequence, if there is one; for `reads` see `Statements`."""
        sequence = self._sequence()
        if sequence is not None:
            self.here = sequence.begin(reads)

    @property
    def is_divisible(self) -> bool:
        """Whether `divide` may be called in the current statement."""
        sequence = self._sequence()
        return sequence is not None and sequence.divisible

    def divide(self, kept: int) -> None:
        """The statement's first half ends here; `kept` registers hold what the second needs."""
        sequence = self._sequence()
        assert sequence is not None
        self.here = sequence.divide(kept)

    def _sequence(self) -> Statements | None:
        """The sequence of the current loop or branch."""
        found = self.statements
        return found if found is not None and found.depth == self.depth else None

    def body(self) -> str:
        return "\n".join(["entry:", *flat(self.allocas), *flat(self.lines)])

    @contextmanager
    def only_where(self, condition: Val | None, writes: frozenset[str]) -> Iterator[None]:
        """Context whose code runs only if `condition` holds; None is always. `writes` are the
        buffers it writes."""
        if condition is None:
            yield
            return
        then, done = self.label("then"), self.label("done")
        self.open_level(writes)
        self.add(f"  br i1 {condition.name}, label %{then}, label %{done}")
        self.start_block(then)
        yield
        self.add(f"  br label %{done}")
        self.close_level()
        self.start_block(done)
