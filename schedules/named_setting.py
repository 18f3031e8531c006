"""Settings by the names of their sketch and knobs, as records store them.

A candidate is a position in one space. Its names mean the same in the space of another workload,
and in the space of the same workload after a change of this project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .space import Candidate, ScheduleSpace, Sketch


@dataclass(frozen=True, slots=True)
class NamedSetting:
    """`sketch`: the name of a sketch. `knobs`: the value of each of its knobs that has several
    values, by name; values are JSON data."""

    sketch: str
    knobs: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"sketch": self.sketch, "knobs": dict(self.knobs)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> NamedSetting:
        """Return the setting of a document written by `to_json`. Raise KeyError or TypeError for
        another document."""
        return cls(str(document["sketch"]), dict(document["knobs"]))


def named_setting(space: ScheduleSpace, candidate: Candidate) -> NamedSetting:
    """Return the names of a candidate of `space`."""
    sketch = space.sketches[candidate.sketch]
    pairs = zip(sketch.knobs, candidate.setting, strict=True)
    return NamedSetting(
        sketch.name,
        {knob.name: _plain(knob.values[i]) for knob, i in pairs if len(knob.values) > 1},
    )


def candidate_of(space: ScheduleSpace, named: NamedSetting) -> Candidate | None:
    """Return the candidate of `space` with these names and values, or None.

    A knob that is not named has its first value. An older version, or a space in which the knob has
    only one value, does not name it.
    """
    for number, sketch in enumerate(space.sketches):
        if sketch.name == named.sketch:
            setting = exact_setting(sketch, named)
            if setting is not None:
                return Candidate(number, setting)
    return None


def exact_setting(sketch: Sketch, named: NamedSetting) -> tuple[int, ...] | None:
    """Return the setting of `sketch` with the values of `named`, whatever the sketch is called, or
    None. Knobs that are not named are those that `candidate_of` describes."""
    places = []
    for knob in sketch.knobs:
        values = [_plain(value) for value in knob.values]
        if len(values) == 1:
            places.append(0)
        elif (value := named.knobs.get(knob.name, values[0])) in values:
            places.append(values.index(value))
        else:
            return None
    return tuple(places)


def _plain(value: Any) -> Any:
    """Return a knob value as JSON data."""
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
