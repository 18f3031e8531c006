"""Where arrays lie in their cache lines while a kernel is checked."""

from __future__ import annotations

from itertools import combinations

import pytest

from tilewright.schedules.dtypes import DType
from tilewright.schedules.workload.tensors import Tensor
from tilewright.tuner.backend.cpu.memory.guarded import Flush, GuardedPool
from tilewright.tuner.backend.cpu.memory.line_offsets import TURNS, line_offsets


def tensors(count: int, dtype: DType) -> list[Tensor]:
    return [Tensor(f"T{n}", (37,), dtype) for n in range(count)]


def test_every_array_is_at_every_word_and_at_every_distance_from_each_other() -> None:
    found = [line_offsets(tensors(6, DType.F32), turn) for turn in range(16)]
    for column in zip(*found, strict=True):
        assert sorted(column) == list(range(0, 64, 4))
    for a, b in combinations(zip(*found, strict=True), 2):
        assert len({x ^ y for x, y in zip(a, b, strict=True)}) == 16


def test_any_two_arrays_are_at_quarters_of_a_line_in_every_way() -> None:
    found = [line_offsets(tensors(4, DType.F32), turn) for turn in range(16, TURNS)]
    for a, b in combinations(zip(*found, strict=True), 2):
        assert len(set(zip(a, b, strict=True))) == 16
    assert {p for each in found for p in each} == {0, 16, 32, 48}


@pytest.mark.parametrize("dtype", [DType.F64, DType.F16, DType.I8])
def test_places_are_multiples_of_an_element(dtype: DType) -> None:
    found = {p for turn in range(TURNS) for p in line_offsets(tensors(3, dtype), turn)}
    assert all(p % dtype.bytes == 0 and p < 64 for p in found)
    assert len(found) >= 8


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("place", [0, 4, 36, 60])
def test_a_buffer_begins_at_its_place_near_its_guard(flush: Flush, place: int) -> None:
    pool = GuardedPool()
    tensor = Tensor("T", (1024,), DType.F32)
    buffer = pool.take_at(tensor, flush, place)
    assert buffer.address % 64 == place
    end = buffer.start + buffer.pages_bytes
    near = buffer.address - buffer.start, end - buffer.address - buffer.size_bytes
    assert near[flush is Flush.RIGHT] < 64
    pool.release(buffer)
    pool.free()
