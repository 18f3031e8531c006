"""Knobs on pages: the field's words, of all knobs there are and short enough to draw."""

from __future__ import annotations

import pytest

from tests.support.schedules.spaces import ODD, target
from tests.support.schedules.spaces import workload as odd
from tilewright.schedules.sketches import space_for
from tilewright.service.http.pages.knob_words import KNOB_WORDS, in_words

MOST_LETTERS = 20
"""What has room above an axis."""


@pytest.mark.parametrize("name", ODD)
def test_every_knob_has_words_of_its_own(name: str) -> None:
    for threads in (1, 2):
        for sketch in space_for(odd(name), target(threads)).sketches:
            names = [knob.name for knob in sketch.knobs]
            assert len(in_words(dict.fromkeys(names))) == len(names), "one word for two knobs"
            told = in_words({name.rpartition(".")[2]: 0 for name in names})
            assert max(map(len, told), default=0) <= MOST_LETTERS


def test_words_fit_above_an_axis() -> None:
    assert max(map(len, KNOB_WORDS.values())) <= MOST_LETTERS


def test_parts_are_counted_and_other_names_are_words_already() -> None:
    told = {"0.rows": 2, "1.rows": 4, "old_knob": 1}
    assert in_words(told) == {"tile rows (1)": 2, "tile rows (2)": 4, "old knob": 1}
