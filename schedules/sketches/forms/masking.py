"""Move conditions to where tiles can skip work: from terms and readers to the results of a product,
and from stored zeros to the terms of a product that reads them."""

from __future__ import annotations

from collections.abc import Iterator

from ...algebra.comparisons import Cond
from ...algebra.counting import estimated_share
from ...algebra.neutral import neutral_conditions
from ...algebra.scalar import Load, loads, rewrite
from ...form import Form
from ...rewrites import MaskResult, RepeatConditions, Rewrite
from ...rewrites.mask_result import conditions_of_terms, result_conditions
from ...rewrites.repeat_conditions import repeated_conditions
from ...workload.tensors import Reduction, Stage
from ...workload.workload import Workload
from ..analysis.stages import view_stage
from ..analysis.tile_roles import is_product
from ..tile.stage import MOST_LEFT


def masked_products(form: Form) -> Form:
    """Return `form` with conditions on products moved, as often as much work can be skipped. Return
    `form` itself if there are none."""
    return form.apply_until_fixpoint(_moved)


def _moved(workload: Workload) -> Iterator[Rewrite]:
    """Yield the steps for products, and for what follows them, if conditions exclude at least
    `1 - MOST_LEFT`."""
    for stage in workload.stages:
        extents = {axis.name: axis.extent for axis in stage.all_axes}
        found = (
            (MaskResult(stage.name), _result_conditions(workload, stage)),
            (RepeatConditions(stage.name), _term_conditions(workload, stage)),
        )
        for step, conds in found:
            few = conds and estimated_share(extents, conds) <= MOST_LEFT
            if few and _is_product(workload, stage):
                yield step


def _is_product(workload: Workload, stage: Stage) -> bool:
    """Return whether `stage` is a product, or an elementwise stage that alone reads one."""
    if stage.is_reduction:
        return is_product(view_stage(workload, stage.name))
    stages = {one.name: one for one in workload.stages if one.is_reduction}
    read = {load.tensor for load in loads(stage.body)} & stages.keys()
    return any(
        workload.consumers(name) == (stage,) and is_product(view_stage(workload, name))
        for name in sorted(read)
    )


def _result_conditions(workload: Workload, stage: Stage) -> tuple[Cond, ...]:
    """Return the conditions of the results of `stage`, or () if a single elementwise stage already
    chooses them."""
    readers = workload.consumers(stage.name)
    is_chosen = stage.is_reduction and len(readers) == 1 and readers[0].is_elementwise
    if is_chosen and not conditions_of_terms(workload, stage):
        return ()
    return result_conditions(workload, stage)


def _term_conditions(workload: Workload, stage: Stage) -> tuple[Cond, ...]:
    """Return conditions of stored constants without which a term of the reduction `stage` does not
    count."""
    if not isinstance(stage.kind, Reduction):
        return ()
    found = repeated_conditions(workload, stage)
    guarded = rewrite(stage.body, lambda node: found.get(node) if isinstance(node, Load) else None)
    before = neutral_conditions(stage.body, stage.kind.reducer)
    after = neutral_conditions(guarded, stage.kind.reducer)
    return tuple(cond for cond in after if cond not in before)
