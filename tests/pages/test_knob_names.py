"""Knobs on pages: their own names as words, which are told apart and short enough to draw."""

from __future__ import annotations

import pytest

from tests.support.schedules.spaces import ODD, target
from tests.support.schedules.spaces import workload as odd
from tilewright.schedules.sketches import space_for
from tilewright.service.http.pages.trials import in_words

MOST_LETTERS = 20
"""What has room above an axis."""


@pytest.mark.parametrize("name", ODD)
def test_every_knob_has_words_of_its_own_that_fit_above_an_axis(name: str) -> None:
    for threads in (1, 2):
        for sketch in space_for(odd(name), target(threads)).sketches:
            names = [knob.name for knob in sketch.knobs]
            assert len(in_words(dict.fromkeys(names))) == len(names), "one word for two knobs"
            told = in_words({name.rpartition(".")[2]: 0 for name in names})
            assert max(map(len, told), default=0) <= MOST_LETTERS


def test_parts_are_counted_from_one() -> None:
    told = {"0.tile_rows": 2, "1.tile_rows": 4, "parallel": 1}
    assert in_words(told) == {"tile rows (1)": 2, "tile rows (2)": 4, "parallel": 1}


def test_knobs_of_earlier_versions_are_shown_by_the_names_they_had() -> None:
    assert in_words({"pack_on_the_way": 1, "0.k_blocks": 4}) == {
        "pack on the way": 1,
        "k blocks (1)": 4,
    }
