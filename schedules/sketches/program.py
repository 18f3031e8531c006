"""The space of a workload: for each form of the expression, the sketches of its groups combined."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import islice

import numpy as np

from ..arrays import BoolArray, IntArray, distinct_rows
from ..errors import ScheduleError
from ..form import Form
from ..lowering.lower import clean
from ..nest.loop_ir import Nest
from ..rewrites import Rewrite
from ..space import DroppedSketch, Knob, ScheduleSpace, Sketch
from ..target import Target
from ..trace import Trace
from ..workload.workload import Workload
from .accepted import accepted_settings, write_parts
from .forms.orders import permute_axes
from .forms.rewriting import regrouped, rewrites_for
from .groups import stages_of
from .inlining import stages_inlined
from .knobs import PartSketch
from .plain import PlainSketch
from .rules import covers, likeliest
from .writer import TraceWriter

MAX_SKETCHES = 4
"""Combinations of alternative sketches that are searched for a form; further ones add little."""


@dataclass(frozen=True)
class ProgramSketch:
    """Several parts, computed one after the other; its knobs are those of the parts, in order.

    `workload` is the workload after `rewrites`. `check` is called before each step while a trace is
    written; an exception from it ends the writing.
    """

    workload: Workload
    inlined: tuple[str, ...]
    parts: tuple[PartSketch, ...]
    rewrites: tuple[Rewrite, ...] = ()
    accepted: tuple[tuple[int, ...], ...] = ()
    """For each part, the setting that replaces its default; empty if primitives accept all
    defaults."""
    check: Callable[[], None] = field(default=lambda: None, compare=False, repr=False)

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
        """The sketch that has this part only."""
        accepted = self.accepted[number : number + 1]
        return replace(self, parts=(self.parts[number],), rewrites=(), accepted=accepted)

    def split_settings(self, settings: IntArray) -> list[IntArray]:
        """The columns of `settings` that belong to each part."""
        ends = np.cumsum([len(part.knobs) for part in self.parts])[:-1]
        return [np.asarray(own) for own in np.split(np.atleast_2d(settings), ends, axis=1)]

    @cached_property
    def _defaults(self) -> tuple[tuple[int, ...], ...]:
        return self.accepted or tuple(part.default() for part in self.parts)

    @cached_property
    def equivalence_classes(self) -> tuple[tuple[int, ...], ...]:
        """The parts in groups of equal structure (see `structure`), groups and members in order."""
        groups: dict[Hashable, list[int]] = {}
        for number, part in enumerate(self.parts):
            groups.setdefault(structure(part), []).append(number)
        return tuple(tuple(group) for group in groups.values())

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) whether the settings of every part are feasible."""
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
        """The trace of one feasible setting."""
        known = self._last_lowered.get(tuple(setting))
        return self._trace_of(self._written(setting)) if known is None else known[0]

    def lowered(self, setting: Sequence[int]) -> tuple[Trace, Nest]:
        """The trace of a setting, and its lowered nest. ScheduleError where a primitive refuses a
        step."""
        known = self._last_lowered.get(tuple(setting))
        if known is None:
            writer = self._written(setting)
            known = (self._trace_of(writer), clean(writer.nest))
            self._last_lowered.clear()
            self._last_lowered[tuple(setting)] = known
        return known

    @cached_property
    def _last_lowered(self) -> dict[tuple[int, ...], tuple[Trace, Nest]]:
        """The last setting that was lowered: a default is lowered when it is tried, chosen and
        measured."""
        return {}

    def _trace_of(self, writer: TraceWriter) -> Trace:
        return Trace((*self.rewrites, *writer.trace.steps))

    def _written(self, setting: Sequence[int]) -> TraceWriter:
        own = [one[0] for one in self.split_settings(np.asarray([setting]))]
        return write_parts(self.workload, self.inlined, self.parts, own, self.check)


def structure(part: PartSketch) -> Hashable:
    """A part without the names of tensors and loops: its kind, its knobs, its fields and the
    tensors it touches. Parts of equal structure have equal plans, leaves and counts."""
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
"""A tensor of a workload in normal form, from which its loops are named; or an element type, which
Python spells like that."""


def space_for(
    workload: Workload, target: Target, check: Callable[[], None] = lambda: None
) -> ScheduleSpace:
    """All schedules that are searched for `workload` on `target`.

    There is at least one sketch, and its default is legal: expressions that no rule matches get
    plain loops. The regrouped form comes first, forms with an error of their own last. A sketch
    that a rule matched but that has no legal setting near its default is listed in `dropped`.
    `check` is called repeatedly; an exception from it ends the construction.
    """
    workload = workload.normalised()
    best = regrouped(workload)
    check()
    others = rewrites_for(workload)
    first = [best] if best.steps else []
    order = permute_axes(best.workload, target)
    if order:
        first.append(best.after(*order))
    found = [one for form in first for one in _sketches(form, target, check)]
    own = _sketches(Form(workload), target, check)
    if all(isinstance(one, DroppedSketch) for one in own):
        own.append(_plain(workload, target))
    found += [*own, *(one for form in others for one in _sketches(form, target, check))]
    return ScheduleSpace(
        workload,
        target,
        tuple(one for one in found if not isinstance(one, DroppedSketch)),
        (best, *others) if best.steps else others,
        tuple(one for one in found if isinstance(one, DroppedSketch)),
    )


def _plain(workload: Workload, target: Target) -> Sketch:
    """The plain sketch of the whole workload."""
    return ProgramSketch(workload, (), (PlainSketch(workload, target),))


def _sketches(
    form: Form, target: Target, check: Callable[[], None]
) -> list[Sketch | DroppedSketch]:
    """The sketches of one form of the workload, those without a legal default as `DroppedSketch`;
    empty if no combination of rules matches."""
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
    """The sketch, with another default if primitives refuse its own."""
    try:
        sketch.lowered(sketch.default())
    except ScheduleError:
        return _with_accepted(sketch)
    return sketch


def _with_accepted(sketch: ProgramSketch) -> Sketch | DroppedSketch:
    try:
        accepted = accepted_settings(sketch.workload, sketch.inlined, sketch.parts, sketch.check)
        found = replace(sketch, accepted=accepted)
        found.lowered(found.default())
    except ScheduleError as error:
        return DroppedSketch(sketch.name, str(error))
    return found
