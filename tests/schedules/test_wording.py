"""Every knob has words, and every value of a knob with named values has a name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from tests.support.schedules.spaces import ODD, target, workload
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.knobs import Knobbed
from tilewright.schedules.sketches.wording import KNOB_WORDS, term_of, value_text


def _sketches(kind: type[Any]) -> Iterator[type[Any]]:
    for below in kind.__subclasses__():
        yield below
        yield from _sketches(below)


def test_the_table_has_the_knobs_of_all_sketches_and_no_others() -> None:
    settings = {cls.SETTINGS for cls in _sketches(Knobbed) if hasattr(cls, "SETTINGS")}
    names = {one.name for own in settings for one in fields(own) if "values" in one.metadata}
    assert names == KNOB_WORDS.keys()
    assert len({words.term for words in KNOB_WORDS.values()}) == len(KNOB_WORDS)


@pytest.mark.parametrize("name", ODD)
def test_values_of_a_knob_have_different_names(name: str) -> None:
    for threads in (1, 2):
        for sketch in space_for(workload(name), target(threads)).sketches:
            for knob in sketch.knobs:
                texts = [value_text(knob.name, value) for value in knob.values]
                assert len(set(texts)) == len(texts), (knob, texts)
            terms = [term_of(knob.name) for knob in sketch.knobs]
            assert len(set(terms)) == len(terms)


def test_parts_are_counted_from_one_and_unknown_knobs_keep_their_names() -> None:
    assert term_of("1.tile_rows") == "tile rows (part 2)"
    assert term_of("k_blocks") == "k blocks"
    assert value_text("0.pack_columns", 2) == "once, before the call"
    assert value_text("pack_columns", 7) == "7"
    assert value_text("k_blocks", 4) == "4"
