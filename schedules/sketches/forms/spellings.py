"""Spellings of one computation: the form that they have in common, and traces of one as traces of
another.

Axes that always lie together may be one axis or several; a transposed convolution may be an
operator, a sum with conditions, or a convolution over stored zeros. The keys of these spellings
differ, and so do the rewrites that lead to a form from each. After the rewrites, tensors and loops
have the names of the normal form of the result, so that the primitives of a trace apply to every
spelling that reaches the form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from ...errors import ScheduleError
from ...form import Form
from ...lowering.lower import start
from ...rewrites import MergeAxes, Rewrite
from ...rewrites.merge_axes import accesses_of_stage
from ...rewrites.split_axis import undoing
from ...trace import Trace
from ...workload.workload import Workload
from .rewriting import canonical, regrouped, rewrites_for


def common_form(workload: Workload) -> Form:
    """Return the regrouped form with all axes merged that always lie together. It is equal for all
    spellings of a computation, and does not depend on a target."""
    return regrouped(workload.stored()).apply_until_fixpoint(merges)


def form_key(workload: Workload) -> str:
    """Return a key that is equal for all spellings of a computation: the key of its common form."""
    return common_form(workload).workload.key


def merges(workload: Workload) -> Iterator[MergeAxes]:
    """Yield the merges of all pairs of axes, legal or not, that are adjacent in an access. Windows
    along the outer axis are excluded, because no step undoes their merges."""
    for stage in workload.stages:
        pairs = (
            (outer, inner)
            for _, index in accesses_of_stage(stage)
            for outer, inner in pairwise(index)
        )
        names = {axis.name for axis in stage.all_axes}
        for pair in dict.fromkeys(tuple(map(str, pair)) for pair in pairs):
            step = MergeAxes(stage.name, *pair)
            if set(pair) <= names and not step.slides(workload):
                yield step


def respelled(trace: Trace, of: Workload, to: Workload) -> Trace | None:
    """Return `trace`, a trace of the workload `of`, as a trace of `to`, another spelling of the
    computation. Its primitives are the same. Return None, or raise ScheduleError, as
    `respelled_form` does."""
    form = respelled_form(trace.rewrites, of, to)
    if form is None:
        return None
    return Trace((*form.steps, *trace.steps[len(trace.rewrites) :]))


def respelled_form(rewrites: Sequence[Rewrite], of: Workload, to: Workload) -> Form | None:
    """Return the form of `of` after `rewrites` as a form of `to`, another spelling of the
    computation.

    Its first steps lead from `to` to the last form on the way of `of` that `to` can reach; then
    follow the remaining `rewrites`. Return None if `to` reaches no such form, or if the order of
    the steps would not be legal. Raise ScheduleError if a rewrite is not legal for `of`.
    """
    forms = list(_forms(of.stored(), rewrites))
    for own in _own_forms(to.stored()):
        for number in range(len(rewrites), -1, -1):
            steps = _steps_to(forms[number], own)
            if steps is None:
                continue
            found = (*steps, *rewrites[number:])
            try:
                reached, _ = start(to, Trace(found))
            except ScheduleError:
                continue
            if reached == forms[-1]:
                return Form(reached, found)
    return None


def _forms(workload: Workload, steps: Sequence[Rewrite]) -> Iterator[Workload]:
    """Yield `workload` and the result of each of the `steps`, which are applied in sequence."""
    yield workload
    for step in steps:
        workload = step.rewrite(workload)
        yield workload


def _own_forms(workload: Workload) -> Iterator[dict[Workload, tuple[Rewrite, ...]]]:
    """Yield the forms of `workload` on the way to its common form and to its canonical form with
    merged axes, with the rewrites that make them. Then yield those on the way to its forms with
    other rounding errors, which take longer."""
    for forms in (_direct_forms, rewrites_for):
        found: dict[Workload, tuple[Rewrite, ...]] = {}
        for form in forms(workload):
            steps = form.apply_until_fixpoint(merges).steps
            for number, reached in enumerate(_forms(workload, steps)):
                found.setdefault(reached, steps[:number])
        yield found


def _direct_forms(workload: Workload) -> tuple[Form, ...]:
    return regrouped(workload), canonical(workload)


def _steps_to(
    wanted: Workload, own: Mapping[Workload, tuple[Rewrite, ...]]
) -> tuple[Rewrite, ...] | None:
    """Return the rewrites that lead to the form `wanted`: those of one of the `own` forms, then
    those that undo merges of `wanted`. Return None if there are none."""
    undone: tuple[Rewrite, ...] = ()
    form = wanted
    for step in Form(wanted).apply_until_fixpoint(merges).steps:
        if form in own:
            break
        assert isinstance(step, MergeAxes)
        try:
            undone = (undoing(step, form), *undone)
        except ScheduleError:
            return None
        form = step.rewrite(form)
    return (*own[form], *undone) if form in own else None
