"""Writing LLVM IR as text, with loop-invariant code moved out of loops.

A function is written from front to back, but pure arithmetic is written at the outermost position
at which its operands exist: every open loop or branch is an `OpenBlock` with a list of the lines
just before it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .overlap import Lines, Statements, flat, in_order
from .transposing import Transposed
from .values import Val


@dataclass(slots=True)
class OpenBlock:
    """An open loop or branch. A store invalidates `loaded_from` its buffer and `transposed`."""

    before: Lines
    """The lines just before it."""
    writes: frozenset[str] = frozenset()
    """The buffers that it writes."""
    memo: dict[Hashable, Val] = field(default_factory=dict)
    """The pure values that are computed in it."""
    computed: dict[str, str] = field(default_factory=dict)
    """The registers of the operations that the current statement computes in it."""
    loaded: dict[str, dict[Hashable, Val]] = field(default_factory=dict)
    """The values that are loaded from each buffer, and values computed from loaded values by the
    name of their operation."""
    transposed: dict[tuple[str, tuple[int, ...]], Transposed] = field(default_factory=dict)
    """The blocks of registers that are read by columns, keyed by buffer and slot numbers."""

    def loaded_from(self, buffer: str) -> dict[Hashable, Val]:
        """Return the values in `loaded` of a buffer or an operation, to read or extend them."""
        return self.loaded.setdefault(buffer, {})


class FunctionText:
    """A function that is being written. Its nesting level is 0. Each open loop or branch adds 1."""

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
        """Return a new register name."""
        self._count += 1
        return f"%{hint}{self._count}"

    def label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def at(self, level: int) -> Lines:
        """Return the list of lines to which code of nesting level `level` is appended."""
        return self.here if level >= self.depth else self.levels[level + 1].before

    def add(self, line: str, level: int | None = None) -> None:
        (self.here if level is None else self.at(level)).append(line)

    def assign(self, expression: str, hint: str = "v", level: int | None = None) -> str:
        """Write `%new = expression`, and return the new name."""
        name = self.new(hint)
        (self.here if level is None else self.at(level)).append(f"  {name} = {expression}")
        return name

    def computed(self, operation: str, hint: str = "v") -> str:
        """Return the register of a pure operation, written here unless the current statement has
        computed it at this level or at an outer one (local value numbering).

        Operations are not shared between statements, which would keep one from moving before
        another (see `overlap`).
        """
        return self.computed_by(operation, lambda: self.assign(operation, hint))

    def computed_by(self, operation: str, write: Callable[[], str]) -> str:
        """Return the register of a pure operation, as `computed` does. `write` writes it and
        returns its register; `operation` is any text that identifies it and its operands."""
        for level in self.levels:
            if operation in level.computed:
                return level.computed[operation]
        name = self.levels[-1].computed[operation] = write()
        return name

    def forget_computed(self) -> None:
        """Begin a statement, which computes all operations itself."""
        for level in self.levels:
            level.computed.clear()

    def start_block(self, label: str) -> None:
        self.here.append(f"{label}:")
        self.block = label

    def open_level(self, writes: frozenset[str] = frozenset()) -> OpenBlock:
        """Open a new level. Values that it uses from outside are written before this point."""
        before: Lines = []
        self.here.append(before)
        level = OpenBlock(before, writes)
        self.levels.append(level)
        return level

    @contextmanager
    def outside(self, level: int) -> Iterator[None]:
        """In this context, values are written at `level`, as if it were the current level.

        Branches must not be written. No statement is cut in two parts (see `overlap`), because the
        position is inside a statement, before one of its loops.
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
        """Return the name of a new stack slot in the entry block. LLVM keeps slots of single values
        in registers."""
        name = self.new("slot")
        self.allocas.append(f"  {name} = alloca {type_}, align {align}")
        return name

    @contextmanager
    def sequence(self, writes: frozenset[str], registers: int) -> Iterator[None]:
        """In this context, statements form a sequence. The first part of a statement may move
        before earlier statements. `writes` has all buffers that the statements write."""
        assert not self.in_sequence
        here, outer = self.here, self.statements
        self.statements = Statements(self.depth, writes)
        self.here = self.statements.pieces[-1].lines
        yield
        here.extend(in_order(self.statements.pieces, registers))
        self.here, self.statements = here, outer

    @property
    def in_sequence(self) -> bool:
        """Whether the statements at this position form a sequence."""
        return self._sequence() is not None

    def begin_statement(self, reads: frozenset[str] | None) -> None:
        """Begin the next statement of the current sequence.

        `reads` are the buffers that the statement reads before it writes, or None if the statement
        must not be cut in two parts.
        """
        sequence = self._sequence()
        assert sequence is not None
        self.here = sequence.begin(reads)

    @property
    def is_divisible(self) -> bool:
        """Return whether the current statement may be cut in two parts here, by `divide`."""
        sequence = self._sequence()
        return sequence is not None and sequence.divisible

    def divide(self, live_registers: int) -> None:
        """End the first part of the current statement. The second part uses `live_registers` values
        of it."""
        sequence = self._sequence()
        assert sequence is not None
        self.here = sequence.divide(live_registers)

    def _sequence(self) -> Statements | None:
        """Return the sequence of the current loop or branch, or None if it has none."""
        found = self.statements
        return found if found is not None and found.depth == self.depth else None

    def body(self) -> str:
        return "\n".join(["entry:", *flat(self.allocas), *flat(self.lines)])

    @contextmanager
    def only_where(self, condition: Val, writes: frozenset[str]) -> Iterator[None]:
        """Code that is written in this context runs only if `condition` holds. `writes` has the
        buffers that the code writes."""
        then, done = self.label("then"), self.label("done")
        self.open_level(writes)
        self.add(f"  br i1 {condition.name}, label %{then}, label %{done}")
        self.start_block(then)
        yield
        self.add(f"  br label %{done}")
        self.close_level()
        self.start_block(done)
