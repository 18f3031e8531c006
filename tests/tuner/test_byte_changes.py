"""Which bytes have changed, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.tuner.backend.cpu.loading.byte_changes import BLOCK_BYTES, ByteChanges, ByteSet
from tilewright.tuner.backend.cpu.loading.native import Helpers, build_helpers
from tilewright.tuner.backend.cpu.memory.guarded import GUARD_BYTES

SIZES = (1, 63, 64, 65, 1000, 1 << 16, (1 << 16) + 1, 200_003)


@pytest.fixture(scope="module")
def helpers() -> Helpers:
    return build_helpers(1, 4, GUARD_BYTES)


@pytest.fixture
def changes(helpers: Helpers) -> ByteChanges:
    return helpers.stand_in.changes


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("offset", [0, 3])
def test_changes_against_a_copy(changes: ByteChanges, size: int, offset: int) -> None:
    rng = np.random.default_rng(size)
    now = rng.integers(0, 256, size + offset, np.uint8)[offset:]
    copy = now.copy()
    changed = np.unique(rng.integers(0, size, min(size, 50)))
    now[changed] ^= rng.integers(1, 256, changed.size, np.uint8)
    found = ByteSet.empty(size)
    changes.against_copy(now, copy, found)
    assert np.array_equal(np.flatnonzero(found.mask()), changed)
    assert np.array_equal(copy, now)
    again = ByteSet.empty(size)
    changes.against_copy(now, copy, again)
    assert not again.mask().any()
    assert not again.touched.any()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("period", [BLOCK_BYTES, 101, 65537])
def test_changes_against_a_repeated_fill(changes: ByteChanges, size: int, period: int) -> None:
    rng = np.random.default_rng(size)
    fill = rng.integers(0, 256, period, np.uint8)
    now = np.resize(fill, size)
    changed = np.unique(rng.integers(0, size, min(size, 50)))
    now[changed] ^= rng.integers(1, 256, changed.size, np.uint8)
    found = ByteSet.empty(size)
    longer = np.append(fill, fill[:BLOCK_BYTES])
    before = longer.copy()
    changes.against_fill(now, longer, period, found)
    assert np.array_equal(np.flatnonzero(found.mask()), changed)
    assert np.array_equal(longer, before)


def test_sets_are_joined_and_what_they_share_is_found(changes: ByteChanges) -> None:
    size = 300_000

    def of(*places: int) -> ByteSet:
        now, found = np.zeros(size, np.uint8), ByteSet.empty(size)
        now[list(places)] = 1
        changes.against_copy(now, np.zeros(size, np.uint8), found)
        return found

    one, other = of(5, 70_000, 299_999), of(6, 70_001, 299_999)
    assert one.first_common(other) == 299_999
    assert one.first_common(of(4, 70_001)) is None
    one.add(of(150_000))
    assert np.flatnonzero(one.mask()).tolist() == [5, 70_000, 150_000, 299_999]
    assert one.first_common(of(150_000)) == 150_000
