"""Software pipelining of rows: the steps of a row, and loops that run steps of several rows at
once.

A softmax goes along each row three times: for its maximum, for exponentials and their sum, and to
divide. Each loop waits for the reduction before it. Skewed by one row the steps are independent:
the division of one row, the exponentials of the next and the maximum of the one after that are one
loop, which hides the latency of one step behind the work of the others.
"""

from __future__ import annotations

from ...nest.editing import flattened
from ...nest.loop_ir import For, PrefetchHint, Stmt, leaves
from ...primitives import Stagger
from ..analysis.reductions import contiguous_reduction
from ..analysis.stages import StageView
from ..groups import FusionGroup
from ..writer import TraceWriter

Steps = tuple[tuple[StageView, ...], ...]
"""The stages of a row, divided into steps with at least one loop along the row each."""


def staggered_steps(group: FusionGroup, lanes: int) -> Steps:
    """The stages of a group in steps that can be pipelined; none if they cannot, or rows are
    shorter than two vectors.

    All stages must be computed along the whole row, or be one value per row computed from others. A
    step begins where a stage needs a value that takes a whole loop along the row. Steps that are
    not neighbours must not need each other's data, which is stored for one row at a time: the last
    ones are joined where they do.
    """
    stages, rows = group.stages, group.shared_axes
    by_name = {view.name: view for view in stages}
    lengths = {view.name: _walked(view, rows) for view in stages}
    long = set(lengths.values()) - {1}
    if len(long) != 1 or None in long or (long.pop() or 0) < 2 * lanes:
        return ()
    level: dict[str, int] = {}
    for view in stages:
        own = [r for r in view.reads if r.tensor in by_name]
        for read in own:
            if _has_walk(by_name[read.tensor], rows) and not _is_same_place(view, read.index, rows):
                return ()
        walks = lengths[view.name] != 1
        level[view.name] = max(
            (level[r.tensor] + (walks and not _has_walk(by_name[r.tensor], rows)) for r in own),
            default=0,
        )
    order = [level[view.name] for view in stages]
    if order != sorted(order):
        return ()
    steps = [tuple(v for v in stages if level[v.name] == n) for n in range(order[-1] + 1)]
    while len(steps) > 1 and _is_far_read(steps):
        steps[-2:] = [(*steps[-2], *steps[-1])]
    walked = any(lengths[view.name] != 1 for view in steps[-1])
    waited_for = all(any(view.is_reduction for view in step) for step in steps[:-1])
    return tuple(steps) if len(steps) > 1 and walked and waited_for else ()


def _walked(view: StageView, rows: int) -> int | None:
    """Elements of the row that a stage goes along, 1 for one value; None if it does otherwise."""
    if view.phase_steps or view.axis_splits:
        return None
    if view.is_reduction:
        (loop, *others) = view.reduce
        fits = not others and len(view.spatial) == rows and contiguous_reduction(view) == loop.name
        return loop.extent if fits else None
    if len(view.spatial) > rows + 1:
        return None
    return view.spatial[-1].extent if len(view.spatial) == rows + 1 else 1


def _has_walk(view: StageView, rows: int) -> bool:
    """Whether a stage has a value for each element of the row."""
    return len(view.spatial) > rows


def _is_same_place(view: StageView, index: tuple[object, ...], rows: int) -> bool:
    """Whether a stage reads the row in order."""
    loops = (*view.spatial, *view.reduce)
    return tuple(map(str, index)) == tuple(loop.name for loop in loops[: rows + 1])


def _is_far_read(steps: list[tuple[StageView, ...]]) -> bool:
    """Whether a stage reads from a step that is neither its own nor the one before."""
    for n, step in enumerate(steps):
        earlier = {view.name for old in steps[: max(n - 1, 0)] for view in old}
        if any(read.tensor in earlier for view in step for read in view.reads):
            return True
    return False


def can_block(steps: Steps, rows: int) -> bool:
    """Whether blocks of rows can be pipelined together. Not where one value per row is computed
    from those of two steps: it has a loop over the rows of its own, after one step and before the
    other."""
    for n, step in enumerate(steps):
        earlier = {view.name for old in steps[:n] for view in old}
        values = (v for v in step if not v.is_reduction and not _has_walk(v, rows))
        if any(read.tensor in earlier for view in values for read in view.reads):
            return False
    return True


def row_length(steps: Steps) -> int:
    """Elements of a row: those of the loop that ends the first step."""
    return max(view.reduce[-1].extent for view in steps[0] if view.is_reduction)


def stagger_steps(writer: TraceWriter, row: str, steps: Steps) -> None:
    """Pipeline the steps of loop `row`, whose loops are still separate."""
    _, body = flattened(writer.loop(row).body)
    writer.do(Stagger(row, tuple(_first_loop(body, step) for step in steps[1:])))


def _first_loop(body: list[Stmt], step: tuple[StageView, ...]) -> str:
    """The first loop of a row's body that writes something of the step."""
    names = tuple(view.name for view in step)

    def is_own(buffer: str) -> bool:
        return any(buffer == name or buffer.startswith(f"{name}.") for name in names)

    for stmt in body:
        written = (leaf.buffer for leaf in leaves((stmt,)) if not isinstance(leaf, PrefetchHint))
        if isinstance(stmt, For) and any(map(is_own, written)):
            return stmt.var
    raise AssertionError(f"no loop writes {', '.join(names)}")
