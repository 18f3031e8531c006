"""Which regions are watched, and how the stand-in for OpenMP runs shares."""

from __future__ import annotations

import ctypes

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.races import (
    Region,
    SerialOpenMP,
    find_conflict,
    forward,
    regions_to_watch,
    reverse,
)

Share = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Parallel = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint
)  # fmt: skip
Number = ctypes.CFUNCTYPE(ctypes.c_int)


class Program:
    """A kernel in Python: enters regions through the stand-in's C functions."""

    def __init__(self, openmp: SerialOpenMP) -> None:
        self._parallel = Parallel(openmp.addresses["GOMP_parallel"])
        self.thread = Number(openmp.addresses["omp_get_thread_num"])
        self.team = Number(openmp.addresses["omp_get_num_threads"])
        self._shares: list[object] = []

    def region(self, share: object, threads: int = 0) -> None:
        function = Share(lambda _: share())  # type: ignore[operator]
        self._shares.append(function)
        self._parallel(ctypes.cast(function, ctypes.c_void_p).value, None, threads, 0)


def test_shares_run_alone_in_the_order_asked_for() -> None:
    openmp = SerialOpenMP(3)
    program = Program(openmp)
    seen: list[tuple[int, int]] = []
    for order in (forward, reverse):
        openmp.watch(order)
        program.region(lambda: seen.append((program.thread(), program.team())))
    assert seen == [(0, 3), (1, 3), (2, 3), (2, 3), (1, 3), (0, 3)]
    assert (program.thread(), program.team()) == (0, 1)


def test_a_region_gets_no_more_threads_than_it_asks_for_and_a_nested_one_has_one() -> None:
    openmp = SerialOpenMP(8)
    program = Program(openmp)
    seen: list[tuple[int, int]] = []
    inner = lambda: seen.append((program.thread(), program.team()))  # noqa: E731
    program.region(lambda: program.region(inner), threads=2)
    assert seen == [(0, 1), (0, 1)]
    assert len(openmp.regions) == 1


def find(threads: int, size: int, write: object) -> object:
    """The conflict of one region in which each share does `write(program, out)`."""
    openmp = SerialOpenMP(threads)
    program = Program(openmp)
    out = np.zeros(size, np.uint8)
    return find_conflict(
        lambda: program.region(lambda: write(program, out)),  # type: ignore[operator]
        openmp,
        [("B", out)],
        frozenset({0}),
    )


@given(
    threads=st.integers(2, 7),
    size=st.integers(1, 100),
    overlap=st.booleans(),
    value=st.integers(0, 255),
)
def test_write_sets_that_meet_are_found_whatever_is_written(
    threads: int, size: int, overlap: bool, value: int
) -> None:
    def write(program: Program, out: np.ndarray) -> None:
        t, n = program.thread(), program.team()
        out[t * size // n : (t + 1) * size // n] = value
        if overlap:
            out[size // 2] = value

    assert (find(threads, size, write) is not None) == overlap


def test_a_shared_sum_is_a_race_though_any_order_gives_the_right_result() -> None:
    def add(program: Program, out: np.ndarray) -> None:
        out[5] += program.thread() + 1

    found = find(2, 8, add)
    assert str(found) == "threads 0 and 1 both write byte 5 of B in parallel region 0"


@given(
    functions=st.lists(st.integers(1, 3), min_size=1, max_size=400),
    writable_bytes=st.sampled_from([0, 1000, 1 << 20, 1 << 28]),
)
def test_the_first_and_last_region_of_every_function_are_watched(
    functions: list[int], writable_bytes: int
) -> None:
    regions = [Region(i, f) for i, f in enumerate(functions)]
    watched = regions_to_watch(regions, writable_bytes, shares=2)
    assert watched <= set(range(len(regions)))
    for function in set(functions):
        places = [i for i, f in enumerate(functions) if f == function]
        assert {places[0], places[-1]} <= watched
    if writable_bytes <= 1000:
        assert len(watched) == len(regions)
