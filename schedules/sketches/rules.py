"""Rules that match sketches to stages by structure, and the resulting covers of a program.

A cover is a list of fusion groups that together contain every stage once, with the sketches of each
group. Rules are independent of each other. Fusing rules match a stage together with earlier stages;
the other rules provide alternatives for a single stage. Stages are examined from the last to the
first. The first cover uses the most promising group of each stage. If the profit of a group is
uncertain, an additional cover leaves its stages unfused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from ..lowering.tuples import TupleGroup
from ..target import Target
from ..workload.tensors import Scan
from ..workload.workload import Workload
from .analysis.reductions import is_along_columns
from .analysis.stages import StageLoop, StageRead, StageView, calls_once
from .analysis.tile_roles import assign_roles, is_product, lane_step, tile_roles
from .fused.columns import ColumnSketch, column_group
from .fused.elementwise import ElementwiseSketch
from .fused.rows import RowSketch, inner_row_group, own_rows, row_group
from .fused.transform import TransformSketch, transform_group
from .groups import Alternative, FusionGroup, Rule, RuleMatch, Stages, is_loop
from .inner_product.roles import NO_LOOP, inner_product_roles
from .inner_product.sketch import InnerProductSketch
from .knobs import PartSketch
from .plain import PlainSketch
from .scan.sketch import ScanSketch
from .scatter.roles import scatter_roles
from .scatter.sketch import ScatterSketch
from .stencils.sketch import scales_sketch, stencil_sketch, window_sketch
from .tile.sketch import TileSketch
from .transpose.copies import transpose_sketch
from .transpose.sums import TransposedSumSketch, find_transposed_sum
from .transposed_tile.sketch import transposed_tiles
from .tuples import TuplesSketch


def transforms(view: StageView, stages: Stages) -> RuleMatch | None:
    """Match stages that choose between formulas by an index."""
    return _fused(TransformSketch, transform_group(stages, view), stages)


def epilogue(view: StageView, stages: Stages) -> RuleMatch | None:
    """Match an elementwise stage as the epilogue of a tiled reduction.

    If the inner-product sketch also matches the reduction, the reduction has few results. An
    unfused alternative is then kept. Another one is kept if the stage calls several functions: a
    tile leaves few registers for their constants and for values of other vectors, so that the
    functions of one vector wait for each other.
    """
    name = _anchor(view, stages)
    if name is None:
        return None
    anchor = stages.views[name]
    roles = assign_roles(anchor)
    assert roles is not None
    tiles = tuple(
        TileSketch(stages.workload, anchor, chosen, stages.target, view)
        for chosen in tile_roles(anchor, roles, stages.target)
    )
    doubt = LONG_EPILOGUE if calls_once(view.value) > 1 else None
    return RuleMatch(tiles, (name,), FEW_RESULTS if inner_products(anchor, stages) else doubt)


def transposed_tile(view: StageView, stages: Stages) -> RuleMatch | None:
    """Match a tiled reduction and the stage that transposes its result. An unfused alternative is
    always kept, because it has larger tiles."""
    sketch = transposed_tiles(stages, view)
    return RuleMatch((sketch,), (sketch.tiles.view.name,), BY_ROW) if sketch else None


def scales(view: StageView, stages: Stages) -> RuleMatch | None:
    """Match stages that read neighbouring elements of each other, some of them at quotients. An
    alternative without these is always kept, because fewer stages have larger tiles."""
    sketch = scales_sketch(stages, view)
    return RuleMatch((sketch,), sketch.group.producer_names, BY_SCALE) if sketch else None


def stencils(view: StageView, stages: Stages) -> RuleMatch | None:
    """Match stages that read neighbouring elements of each other. If some of them are reductions,
    an unfused alternative is kept."""
    sketch = stencil_sketch(stages, view)
    if sketch is None:
        return None
    reduces = any(stage.is_reduction for stage in sketch.stages)
    return RuleMatch((sketch,), sketch.group.producer_names, BY_WINDOW if reduces else None)


def windows(view: StageView, stages: Stages) -> RuleMatch | None:
    """Match an elementwise stage that reads neighbours in several rows."""
    sketch = window_sketch(stages, view)
    return RuleMatch((sketch,)) if sketch else None


def columns(view: StageView, stages: Stages) -> RuleMatch | None:
    """Match stages with the same columns. An unfused alternative is always kept because rows may be
    equally fast."""
    return _fused(ColumnSketch, column_group(stages, view), stages, BY_COLUMN)


def rows(view: StageView, stages: Stages) -> RuleMatch | None:
    """Match stages with the same rows. If there are fewer rows than threads, an unfused alternative
    is kept."""
    along = _stored_along_rows(stages)
    group = row_group(along, view) if assign_roles(view) is None else None
    few = group is not None and group.repeats < stages.target.threads
    return _fused(RowSketch, group, stages, FEW_ROWS if few else None)


def inner_rows(view: StageView, stages: Stages) -> RuleMatch | None:
    """Match stages with the same rows if these are not the leading axes of the last stage. An
    unfused alternative is always kept because elements of a row may be far apart."""
    return _fused(RowSketch, inner_row_group(_stored_along_rows(stages), view), stages, INNER_ROWS)


def _stored_along_rows(stages: Stages) -> Stages:
    """Return `stages` without the stages left that transpose wide blocks of an operand. In a row,
    they would load each element from another line."""
    return stages.before([x for x in stages.left if not _transposes(stages.views[x], stages)])


def _transposes(view: StageView, stages: Stages) -> bool:
    """Return whether a stage transposes blocks of an operand that fill vectors."""
    found = transpose_sketch(stages.workload, view, stages.target)
    return found is not None and not found.is_narrow


def _fused(
    kind: Callable[[Workload, FusionGroup, Target], PartSketch],
    group: FusionGroup | None,
    stages: Stages,
    doubt: Alternative | None = None,
) -> RuleMatch | None:
    if group is None:
        return None
    return RuleMatch((kind(stages.workload, group, stages.target),), group.producer_names, doubt)


def _anchor(view: StageView, stages: Stages) -> str | None:
    """Return the name of the tiled reduction of which `view` can be the epilogue, or None."""
    if view.is_reduction or view.axis_splits:
        return None
    for read in view.reads:
        name = read.tensor
        if name not in stages.left or read.padded:
            continue
        anchor = stages.views[name]
        direct = all(
            is_loop(i, loop)
            for r in view.reads
            if r.tensor == name and len(r.index) == len(view.spatial)
            for i, loop in zip(r.index, view.spatial, strict=True)
        )
        alone = stages.only_needed_by(name, {view.name})
        if direct and alone and anchor.shape == view.shape and is_product(anchor):
            return name
    return None


def tiles(view: StageView, stages: Stages) -> RuleMatch | None:
    """Match a reduction that register tiles compute. A plain sum that reads each element once does
    not profit from tiles and is not matched."""
    roles = assign_roles(view)
    if roles is None or (is_along_columns(view) and len(view.reads) == 1 and view.reuse <= 1):
        return None
    found = tile_roles(view, roles, stages.target) if view.reuse > 1 else (roles,)
    return RuleMatch(tuple(TileSketch(stages.workload, view, r, stages.target) for r in found))


def inner_products(view: StageView, stages: Stages) -> RuleMatch | None:
    """Match a reduction that is vectorised along the reduction axis. Its output axes are not
    split."""
    workload, target = stages.workload, stages.target
    is_tiled = assign_roles(view) is not None
    view = stages.unsplit(view)
    roles = inner_product_roles(view, target)
    if roles is None or not (is_tiled or roles.few is NO_LOOP):
        return None
    return RuleMatch((InnerProductSketch(workload, view, roles, target),))


def transposed_sums(view: StageView, stages: Stages) -> RuleMatch | None:
    """Match a sum that transposes an operand."""
    found = find_transposed_sum(view) if assign_roles(view) is None else None
    if found is None:
        return None
    return RuleMatch((TransposedSumSketch(stages.workload, view, found, stages.target),))


def transpositions(view: StageView, stages: Stages) -> RuleMatch | None:
    """Match an elementwise stage that transposes an operand."""
    sketch = transpose_sketch(stages.workload, view, stages.target)
    return RuleMatch((sketch,)) if sketch else None


def row(view: StageView, stages: Stages) -> RuleMatch | None:
    """Match a single stage, unless its tiles would reuse operands or it transposes wide blocks."""
    roles = assign_roles(view)
    if roles is not None and view.reuse > 1 and lane_step(roles) == 1:
        return None
    if _transposes(view, stages):
        return None
    alone = FusionGroup(view, (), own_rows(view))
    kind = RowSketch if view.is_reduction else ElementwiseSketch
    return RuleMatch((kind(stages.workload, alone, stages.target),))


def scanned(view: StageView, scan: Scan, stages: Stages) -> RuleMatch:
    """Match a scan."""
    return RuleMatch((ScanSketch(stages.workload, view, scan, stages.target),))


def scattered(view: StageView, stages: Stages) -> RuleMatch | None:
    """Match a reduction in which data select the output of each term. Sketches that compute it by
    comparisons are alternatives, and precede it if there are few outputs."""
    roles = scatter_roles(view)
    if roles is None:
        return None
    matches = (rule(view, stages) for rule in ALONE)
    others = tuple(part for match in matches if match for part in match.parts)
    own = ScatterSketch(stages.workload, view, roles, stages.target)
    return RuleMatch((*others, own) if own.has_few_outputs else (own, *others))


def reduced_tuples(view: StageView, group: TupleGroup, stages: Stages) -> RuleMatch:
    """Match all stages that compute components of a reduction of tuples."""
    others = tuple(name for name in group.tensors.values() if name != view.name)
    return RuleMatch((TuplesSketch(stages.workload, view, group, stages.target),), others)


def after_scan(view: StageView, stages: Stages) -> RuleMatch | None:
    """Match an elementwise stage with the scan that it reads at its own position. Its other reads
    are contiguous along the lanes of the scan, or constant."""
    if view.is_reduction or view.is_ordered or view.axis_splits or view.phase_steps:
        return None
    names = {read.tensor for read in view.reads} & set(stages.left)
    for name in sorted(names):
        before = stages.views[name]
        readers = stages.readers[name]
        if before.scan is None or before.shape != view.shape or readers != (view,):
            continue
        sketch = ScanSketch(stages.workload, before, before.scan, stages.target, view)
        own = view.spatial[before.spatial.index(sketch.last)]
        if all(_is_alongside(read, name, view, own) for read in view.reads):
            return RuleMatch((sketch,), (name,))
    return None


def _is_alongside(read: StageRead, name: str, view: StageView, lanes: StageLoop) -> bool:
    if read.tensor == name:
        return all(is_loop(i, loop) for i, loop in zip(read.index, view.spatial, strict=True))
    return read.element_stride(lanes.name) in (0, 1)


BY_COLUMN, FEW_ROWS = Alternative("columns"), Alternative("few rows")
INNER_ROWS = Alternative("inner rows")
BY_SCALE, BY_WINDOW = Alternative("scales"), Alternative("windows")
BY_ROW = Alternative("transposed rows")
FEW_RESULTS = Alternative("few results", inner_products)
LONG_EPILOGUE = Alternative("long epilogue")

DOUBTS = (BY_SCALE, BY_ROW, BY_WINDOW, BY_COLUMN, FEW_ROWS, INNER_ROWS, FEW_RESULTS, LONG_EPILOGUE)
"""Alternatives, in the order in which covers without the corresponding fusion are added."""

FUSING: tuple[Rule, ...] = (
    transforms,
    epilogue,
    transposed_tile,
    scales,
    stencils,
    columns,
    rows,
    inner_rows,
)
"""Fusing rules, the most promising first. The first match is used."""

ALONE: tuple[Rule, ...] = (
    tiles,
    inner_products,
    transposed_sums,
    transpositions,
    windows,
    row,
)
"""Rules for a single stage, the most promising first. All matches are alternatives."""

Cover = list[tuple[PartSketch, ...]]
"""The sketches of each group, the most promising first. The groups are in program order."""


def covers(stages: Stages) -> list[Cover]:
    """Return the covers of all stages, the most promising first."""
    first = _groups(stages, None)
    doubts = {fit.alternative for fit in first}
    others = (_groups(stages, doubt) for doubt in DOUBTS if doubt in doubts)
    return [[fit.parts for fit in groups] for groups in (first, *others)]


def _groups(stages: Stages, doubt: Alternative | None) -> list[RuleMatch]:
    """Return the groups of one cover. Fusions with the alternative `doubt` are not used. A scan is
    in a group with at most one other stage, a reduction of tuples or a scatter in one of its
    own."""
    found: list[RuleMatch] = []
    left = list(stages.left)
    while left:
        view = stages.views[left.pop()]
        if view.scan is not None:
            found.insert(0, scanned(view, view.scan, stages))
            continue
        if view.tuples is not None:
            match = reduced_tuples(view, view.tuples, stages)
            left = [name for name in left if name not in match.fused_stages]
            found.insert(0, match)
            continue
        fusible = [name for name in left if _is_fusible(stages.views[name])]
        fit = (
            after_scan(view, stages.before(left))
            or scattered(view, stages.before(left))
            or _group(stages.before(fusible), view, doubt)
        )
        for name in fit.fused_stages:
            left.remove(name)
        found.insert(0, fit)
    return found


def _is_fusible(view: StageView) -> bool:
    """Return whether a stage may be in a group with any other."""
    return not view.is_ordered and scatter_roles(view) is None


def _group(stages: Stages, view: StageView, doubt: Alternative | None) -> RuleMatch:
    """Return the most promising group of `view` and earlier stages. If there is none, return all
    matches of `view` as a single stage, or the plain sketch if no rule matches. Fusions with the
    alternative `doubt` are not used."""
    for rule in FUSING:
        fit = rule(view, stages)
        if fit is not None and (doubt is None or fit.alternative is not doubt):
            return fit
    meant = doubt.fallback_rule(view, stages) if doubt and doubt.fallback_rule else None
    alone = [meant] if meant else [rule(view, stages) for rule in ALONE]
    parts = tuple(part for fit in alone if fit for part in fit.parts)
    return RuleMatch(parts or (PlainSketch(stages.workload, stages.target, (view.name,)),))


def alone(stages: Stages) -> Cover:
    """Return the sketches of each stage as a group of its own, the most promising first. The plain
    sketch is the last of each."""
    found: Cover = []
    done = set[str]()
    for name, view in stages.views.items():
        if name in done:
            continue
        matches = [rule(view, stages) for rule in ALONE if not view.is_ordered]
        if view.scan is not None:
            matches = [scanned(view, view.scan, stages)]
        scatter = scattered(view, stages)
        if scatter is not None:
            matches = [scatter]
        if view.tuples is not None:
            matches = [reduced_tuples(view, view.tuples, stages)]
            done |= {*view.tuples.tensors.values()}
        parts = tuple(part for fit in matches if fit for part in fit.parts)
        found.append((*parts, PlainSketch(stages.workload, stages.target, (name,))))
    return found


def likeliest(ways: list[Cover]) -> Iterator[tuple[PartSketch, ...]]:
    """Yield combinations of the groups' sketches by increasing sum of ranks: the second choice of
    any group precedes the third choice of another group."""
    for total in count():
        for cover in ways:
            yield from _of_rank(cover, total)
        if all(total >= sum(len(parts) - 1 for parts in cover) for cover in ways):
            return


def _of_rank(cover: Cover, total: int) -> Iterator[tuple[PartSketch, ...]]:
    """Yield the combinations whose ranks sum to `total`. The choices of later groups vary first."""
    if not cover:
        if total == 0:
            yield ()
        return
    most_later = sum(len(parts) - 1 for parts in cover[1:])
    for place, part in enumerate(cover[0][: total + 1]):
        if total - place <= most_later:
            yield from ((part, *others) for others in _of_rank(cover[1:], total - place))
