"""Software pipelining of rows: a row's stages are divided into steps that overlap across rows.

A softmax iterates over each row three times: for the maximum, for exponentials and their sum, and
for the division. Each pass waits for the result of the pass before. With software pipelining, one
loop computes the quotients of one row, the exponentials of the next row and the maximum of the row
after that. These are independent, so the latency of one is hidden by the others.
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
"""The stages of a row, divided into pipeline steps of one pass or more."""


def staggered_steps(group: FusionGroup, lanes: int) -> Steps:
    """Return the stages of a group in steps that can be software-pipelined. Return () if this is
    impossible, or if rows are shorter than two vectors.

    Every stage must iterate over the whole row or compute one value per row from other stages. A
    step starts at a stage that needs the result of a whole pass. A step may read data of the
    previous step only, because buffers hold few rows. The last steps are merged until this is true.
    """
    stages, rows = group.nest_order, group.shared_axes
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
    """Return the number of row elements that a stage iterates over, or 1 if it computes a single
    value. Return None if the stage is neither one pass over a row nor one value per row."""
    if view.phase_steps or view.axis_splits:
        return None
    if view.is_reduction:
        (loop, *others) = view.reduce
        fits = not others and len(view.spatial) == rows and contiguous_reduction(view) == loop.name
        return loop.extent if fits else None
    if len(view.spatial) > rows + 1:
        return None
    if len(view.spatial) == rows:
        return 1
    # A loop over a row of one element cannot be merged with a loop over the whole row.
    return view.spatial[-1].extent if view.spatial[-1].extent > 1 else None


def _has_walk(view: StageView, rows: int) -> bool:
    """Return whether a stage computes a value for each element of the row."""
    return len(view.spatial) > rows


def _is_same_place(view: StageView, index: tuple[object, ...], rows: int) -> bool:
    """Return whether `index` is the element of the current iteration of the stage."""
    loops = (*view.spatial, *view.reduce)
    return tuple(map(str, index)) == tuple(loop.name for loop in loops[: rows + 1])


def _is_far_read(steps: list[tuple[StageView, ...]]) -> bool:
    """Return whether a stage reads a stage that is before the previous step."""
    for n, step in enumerate(steps):
        earlier = {view.name for old in steps[: max(n - 1, 0)] for view in old}
        if any(read.tensor in earlier for view in step for read in view.reads):
            return True
    return False


def can_block(steps: Steps, rows: int) -> bool:
    """Return whether several rows can be pipelined together. This is impossible if one value per
    row depends on an earlier step: its loop over the rows would have to run between two steps."""
    for n, step in enumerate(steps):
        earlier = {view.name for old in steps[:n] for view in old}
        values = (v for v in step if not v.is_reduction and not _has_walk(v, rows))
        if any(read.tensor in earlier for view in values for read in view.reads):
            return False
    return True


def row_length(steps: Steps) -> int:
    """Return the number of elements of a row. The first step must end with a reduction over the
    row."""
    return max(view.reduce[-1].extent for view in steps[0] if view.is_reduction)


def stagger_steps(writer: TraceWriter, row: str, steps: Steps) -> None:
    """Pipeline the `steps` of loop `row` over several rows (`Stagger`). Call this before the loops
    in the body of `row` are merged."""
    _, body = flattened(writer.loop(row).body)
    writer.do(Stagger(row, tuple(_first_loop(body, step) for step in steps[1:])))


def _first_loop(body: list[Stmt], step: tuple[StageView, ...]) -> str:
    """Return the first loop in a row's body that writes a buffer of the step."""
    names = tuple(view.name for view in step)

    def is_own(buffer: str) -> bool:
        return any(buffer == name or buffer.startswith(f"{name}.") for name in names)

    for stmt in body:
        written = (leaf.buffer for leaf in leaves((stmt,)) if not isinstance(leaf, PrefetchHint))
        if isinstance(stmt, For) and any(map(is_own, written)):
            return stmt.var
    raise AssertionError(f"no loop writes {', '.join(names)}")
