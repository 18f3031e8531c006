"""The schedule space of a workload: for each form, combinations of sketches of its fusion
groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import islice

import numpy as np

from ..arrays import BoolArray, IntArray, distinct_rows
from ..errors import ScheduleError
from ..form import Form
from ..lowering.lower import clean
from ..lowering.storage import plan_storage
from ..nest.loop_ir import Nest
from ..rewrites import Rewrite
from ..space import DroppedSketch, Knob, ScheduleSpace, Sketch, SpacePart
from ..target import Target
from ..trace import Trace
from ..workload.workload import Workload
from .accepted import accepted_settings, write_parts
from .copying import copied_outputs
from .forms.grouping import columns_first
from .forms.masking import masked_products
from .forms.merging import merge_axes
from .forms.orders import permute_axes
from .forms.rewriting import canonical, regrouped, rewrites_for
from .forms.tuples import locate_extremes, split_tuples
from .groups import stages_of
from .inlining import stages_inlined
from .knobs import PartSketch
from .plain import PlainSketch
from .rules import alone, covers, likeliest
from .writer import TraceWriter

MAX_SKETCHES = 4
"""Largest number of combinations of parts per form; further combinations add little."""


@dataclass(frozen=True)
class ProgramSketch:
    """The sketches of a program's fusion groups (its parts). The groups are computed one after the
    other. The knobs are the knobs of the parts, in order."""

    workload: Workload
    """The workload of the parts: the workload of the space after `rewrites`."""
    inlined: tuple[str, ...]
    parts: tuple[PartSketch, ...]
    rewrites: tuple[Rewrite, ...] = ()
    accepted: tuple[tuple[int, ...], ...] = ()
    """Settings that replace the defaults of all parts, because a default is not feasible or
    primitives reject it. Empty if all defaults are used."""
    check: Callable[[], None] = field(default=lambda: None, compare=False, repr=False)
    """Called repeatedly while a trace is emitted. It may raise an exception to stop."""

    @property
    def name(self) -> str:
        rewrites = (step.label for step in self.rewrites)
        return "+".join((*rewrites, *(part.name for part in self.parts)))

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        if len(self.parts) == 1:
            return self.parts[0].knobs
        return tuple(
            Knob(f"{n}.{knob.name}", knob.values)
            for n, part in enumerate(self.parts)
            for knob in part.knobs
        )

    def single_part(self, number: int) -> ProgramSketch:
        """Return the sketch that consists of part `number` only."""
        accepted = self.accepted[number : number + 1]
        return replace(self, parts=(self.parts[number],), rewrites=(), accepted=accepted)

    def split_settings(self, settings: IntArray) -> list[IntArray]:
        """Return the columns of `settings` that belong to each part."""
        ends = np.cumsum([len(part.knobs) for part in self.parts])[:-1]
        return [np.asarray(own) for own in np.split(np.atleast_2d(settings), ends, axis=1)]

    @cached_property
    def _defaults(self) -> tuple[tuple[int, ...], ...]:
        return self.accepted or tuple(part.default() for part in self.parts)

    @cached_property
    def equivalence_classes(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the parts, grouped by `structure`, in increasing order. All parts of a
        group give equal results for equal settings."""
        groups: dict[Hashable, list[int]] = {}
        for number, part in enumerate(self.parts):
            groups.setdefault(structure(part), []).append(number)
        return tuple(tuple(group) for group in groups.values())

    def feasible(self, settings: IntArray) -> BoolArray:
        """Return whether the settings of all parts are feasible, shape (P,)."""
        if len(self.parts) == 1:
            return self.parts[0].feasible(settings)
        own = self.split_settings(settings)
        result = np.ones(len(own[0]), np.bool_)
        for group in self.equivalence_classes:
            distinct, places = distinct_rows(np.concatenate([own[n] for n in group]))
            found = self.parts[group[0]].feasible(distinct)[places]
            result &= found.reshape(len(group), -1).all(axis=0)
        return result

    def default(self) -> tuple[int, ...]:
        return tuple(i for own in self._defaults for i in own)

    def trace(self, setting: Sequence[int]) -> Trace:
        """Return the trace of one feasible setting."""
        known = self._last_lowered.get(tuple(setting))
        return self._trace_of(self._written(setting)) if known is None else known[0]

    def lowered(self, setting: Sequence[int]) -> tuple[Trace, Nest]:
        """Return the trace of a setting and its lowered nest. Raise ScheduleError if a primitive
        rejects a step of the trace."""
        known = self._last_lowered.get(tuple(setting))
        if known is None:
            writer = self._written(setting)
            known = (self._trace_of(writer), clean(writer.nest))
            self._last_lowered.clear()
            self._last_lowered[tuple(setting)] = known
        return known

    @cached_property
    def _last_lowered(self) -> dict[tuple[int, ...], tuple[Trace, Nest]]:
        """Cache of the result of `lowered` for the last setting. A default is lowered to test it,
        and again to measure it."""
        return {}

    def _trace_of(self, writer: TraceWriter) -> Trace:
        return Trace((*self.rewrites, *writer.trace.steps))

    def _written(self, setting: Sequence[int]) -> TraceWriter:
        own = [one[0] for one in self.split_settings(np.asarray([setting]))]
        return write_parts(self.workload, self.inlined, self.parts, own, self.check)


def structure(part: SpacePart) -> Hashable:
    """Return the structure of a part, independent of the names of tensors and loops. It consists of
    the class, the knobs, the fields, and the tensors that the part accesses. Parts of equal
    structure give equal results for equal settings."""
    order: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return order.setdefault(found[0], f"#{len(order)}")

    made_from = {
        field.name: getattr(part, field.name)
        for field in fields(part)  # type: ignore[arg-type]  # parts are dataclasses
        if field.name not in ("workload", "target")
    }
    text = _TENSOR.sub(number, repr(made_from))
    workload = part.workload
    touched = (workload.tensors[name] for name in order if name in workload.tensors)
    shapes = tuple((t.shape, t.dtype, t.constant, t.name in workload.outputs) for t in touched)
    return (type(part), tuple((knob.name, knob.values) for knob in part.knobs), text, shapes)


_TENSOR = re.compile(r"\b[is]\d+\b")
"""A name of a tensor in normal form, which also starts the names of its loops, or an element type
such as `i32`. `structure` numbers both, so that they remain distinct."""


def space_for(
    workload: Workload, target: Target, check: Callable[[], None] = lambda: None
) -> ScheduleSpace:
    """Return the schedule space of `workload` on `target`.

    The space has at least one sketch with a default that primitives accept, because stages that no
    rule matches, or for which primitives or the storage plan reject all sketches, become plain
    loops. Only the workspace of plain loops may be too large. The regrouped form is first, with
    merged axes if its last axes are unsuitable for vectors. Forms with a different rounding error
    are last.
    `dropped` lists the sketches for which primitives reject the default and all nearby settings.
    `check` is called repeatedly and may raise an exception to stop.
    """
    given = workload.normalised()
    workload = given.stored()
    best = regrouped(workload)
    check()
    others = rewrites_for(workload)
    written = canonical(workload)
    merged = merge_axes(columns_first(masked_products(best), target), target)
    merged = copied_outputs(merged, target)
    divided = split_tuples(locate_extremes(merged, target), target)
    first = [divided] if divided is not merged else []
    if merged.steps != written.steps:
        first.append(merged)
    order = permute_axes(merged.workload, target)
    if order:
        first.append(merged.after(*order))
    found = [one for form in first for one in sketches_of(form, target, check)]
    own = sketches_of(written, target, check)
    if not any(_has_storage(one) for one in own):
        own.append(_stage_by_stage(workload, target, check))
    found += [*own, *(one for form in others for one in sketches_of(form, target, check))]
    return ScheduleSpace(
        given,
        target,
        tuple(one for one in found if not isinstance(one, DroppedSketch)),
        (best, *others) if best.steps else others,
        tuple(one for one in found if isinstance(one, DroppedSketch)),
    )


def _stage_by_stage(workload: Workload, target: Target, check: Callable[[], None]) -> Sketch:
    """Return a sketch in which each stage is computed alone, by its most promising sketch that
    primitives accept. It is used if primitives or the storage plan reject all other sketches."""
    inlined = stages_inlined(workload)
    parts: list[PartSketch] = []
    accepted: tuple[tuple[int, ...], ...] = ()
    for choices in alone(stages_of(workload, inlined, target)):
        for part in choices:
            with suppress(ScheduleError):
                accepted = accepted_settings(workload, inlined, [*parts, part], check)
                parts.append(part)
                break
    found = ProgramSketch(workload, inlined, tuple(parts), accepted=accepted, check=check)
    if _has_storage(found):
        return found
    names = tuple(stage.name for stage in workload.stages)
    return ProgramSketch(workload, (), (PlainSketch(workload, target, names),))


def _has_storage(sketch: Sketch | DroppedSketch) -> bool:
    """Return whether primitives and the storage plan accept the default of a sketch."""
    if isinstance(sketch, DroppedSketch):
        return False
    try:
        plan_storage(sketch.lowered(sketch.default())[1])
    except ScheduleError:
        return False
    return True


def sketches_of(
    form: Form, target: Target, check: Callable[[], None]
) -> list[Sketch | DroppedSketch]:
    """Return the sketches of one form, the most promising first. `check` is called repeatedly."""
    workload = form.workload
    inlined = stages_inlined(workload)
    ways = covers(stages_of(workload, inlined, target))
    found: list[Sketch | DroppedSketch] = []
    for parts in islice(likeliest(ways), MAX_SKETCHES):
        check()
        sketch = ProgramSketch(workload, inlined, parts, form.steps, check=check)
        found.append(_with_legal_default(sketch))
    return found


def _with_legal_default(sketch: ProgramSketch) -> Sketch | DroppedSketch:
    """Return the sketch, with other default settings if its default is not feasible or primitives
    reject it."""
    try:
        sketch.lowered(sketch.default())
    except ScheduleError:
        return _with_accepted(sketch)
    is_feasible = bool(np.all(sketch.feasible(np.asarray([sketch.default()]))))
    return sketch if is_feasible else _with_accepted(sketch)


def _with_accepted(sketch: ProgramSketch) -> Sketch | DroppedSketch:
    try:
        accepted = accepted_settings(sketch.workload, sketch.inlined, sketch.parts, sketch.check)
        found = replace(sketch, accepted=accepted)
        found.lowered(found.default())
    except ScheduleError as error:
        return DroppedSketch(sketch.name, str(error))
    return found
