"""Which regions are watched, and how the stand-in for OpenMP runs shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tuner.planted_kernels import c_object
from tilewright.tuner.backend.cpu.checker.races import (
    Conflict,
    Observer,
    ParallelRegion,
    SerialOpenMP,
    find_conflict,
    first_conflict,
    forward,
    regions_to_watch,
    reverse,
)
from tilewright.tuner.backend.cpu.loading.loader import LoadedKernel, load_object, use_openmp
from tilewright.tuner.backend.cpu.loading.native import Helpers, build_helpers
from tilewright.tuner.backend.cpu.memory.fills import constant
from tilewright.tuner.backend.cpu.memory.stacks import Stacks, build_stacks

# Kernels get parameters in `a` and write to `b`, both of them numbers of 64 bits.
_NUMBERS = "const long *p = (const long *)a; unsigned char *out = (unsigned char *)b;"
LOG = (
    _NUMBERS
    + """ long *log = (long *)b;
#pragma omp parallel num_threads(p[0])
{ log[++log[0]] = omp_get_thread_num(); log[++log[0]] = omp_get_num_threads(); }
log[++log[0]] = omp_get_thread_num(); log[++log[0]] = omp_get_num_threads();"""
)
NESTED = (
    _NUMBERS
    + """ long *log = (long *)b;
#pragma omp parallel num_threads(p[0])
{
#pragma omp parallel num_threads(4)
  { log[++log[0]] = omp_get_thread_num(); log[++log[0]] = omp_get_num_threads(); } }"""
)
# p: threads, bytes of `out`, whether all write one byte, what is written
WRITES = (
    _NUMBERS
    + """
#pragma omp parallel num_threads(p[0])
{ long t = omp_get_thread_num(), n = omp_get_num_threads();
  for (long i = t * p[1] / n; i < (t + 1) * p[1] / n; i++) out[i] = p[3];
  if (p[2]) out[p[1] / 2] = p[3]; }"""
)
SUM = (
    _NUMBERS
    + """
#pragma omp parallel num_threads(2)
{ out[5] += omp_get_thread_num() + 1; }"""
)
# Each thread writes a place of its own in the caller's frame, which is no race.
OWN_PLACES = (
    _NUMBERS
    + """ volatile long own[8] = {0};
#pragma omp parallel num_threads(4)
{ own[omp_get_thread_num()] = p[3]; }
out[0] = own[0] + own[3];"""
)


@pytest.fixture(scope="module")
def helpers() -> Helpers:
    return build_helpers(3, 8, 0)


@pytest.fixture(scope="module")
def stacks() -> Stacks:
    return build_stacks()


Load = Callable[[str, int], "Program"]


@pytest.fixture(scope="module")
def load(helpers: Helpers, stacks: Stacks) -> Iterator[Load]:
    use_openmp(helpers.stand_in.addresses)
    yield lambda body, threads: Program(body, SerialOpenMP(helpers.stand_in, stacks, threads))
    use_openmp(None)


class Program:
    """A kernel in C on the stand-in: `program(a, b)` with arrays."""

    loaded: dict[str, LoadedKernel] = {}  # noqa: RUF012 (a cache for all of this file)

    def __init__(self, body: str, openmp: SerialOpenMP) -> None:
        if body not in self.loaded:
            self.loaded[body] = load_object(c_object(body), "kernel")
        self.openmp = openmp
        self._address = self.loaded[body].address

    def __call__(self, parameters: list[int], out: np.ndarray[Any, Any]) -> int:
        given = np.array(parameters, np.int64)
        return self.openmp.call(self._address, [given.ctypes.data, out.ctypes.data, 0])


def logged(program: Program, *parameters: int) -> list[tuple[int, int]]:
    log = np.zeros(32, np.int64)
    assert program(list(parameters), log) == 0
    return list(
        zip(log[1 : log[0] + 1 : 2].tolist(), log[2 : log[0] + 1 : 2].tolist(), strict=True)
    )


def test_shares_run_alone_in_the_order_asked_for(load: Load) -> None:
    program = load(LOG, 3)
    found = []
    for order in (forward, reverse):
        program.openmp.watch(order)
        found += logged(program, 3)
    assert found == [(0, 3), (1, 3), (2, 3), (0, 1), (2, 3), (1, 3), (0, 3), (0, 1)]


def test_a_region_gets_no_more_threads_than_it_asks_for_and_a_nested_one_has_one(
    load: Load,
) -> None:
    program = load(NESTED, 8)
    assert logged(program, 2) == [(0, 1), (0, 1)]
    assert len(program.openmp.regions) == 1


def find(program: Program, size: int, *parameters: int) -> Conflict | None:
    """The conflict of the one region of a kernel."""
    out = np.zeros(size, np.uint8)
    return find_conflict(
        lambda: program(list(parameters), out), program.openmp, [("B", out)], frozenset({0})
    )


@given(
    threads=st.integers(2, 7),
    size=st.integers(1, 100),
    overlap=st.booleans(),
    value=st.integers(0, 255),
)
def test_write_sets_that_meet_are_found_whatever_is_written(
    load: Load, threads: int, size: int, overlap: bool, value: int
) -> None:
    program = load(WRITES, threads)
    assert (find(program, size, threads, size, overlap, value) is not None) == overlap


def test_a_shared_sum_is_a_race_though_any_order_gives_the_right_result(load: Load) -> None:
    found = find(load(SUM, 2), 8)
    assert str(found) == "threads 0 and 1 both write byte 5 of B in parallel region 0"


def test_own_places_in_the_frame_of_the_caller_are_no_race(load: Load) -> None:
    assert find(load(OWN_PLACES, 4), 8, 4, 8, 0, 3) is None


@pytest.mark.parametrize("fill", [0x00, 0x55, 0xFF])
def test_what_was_not_written_on_a_stack_is_its_fill(load: Load, fill: int) -> None:
    unwritten = (
        _NUMBERS
        + """
{ unsigned char x[200000]; __asm__ volatile("" : : "r"(x) : "memory"); memcpy(out, x, 1000); }
#pragma omp parallel num_threads(2)
{ unsigned char x[200000]; __asm__ volatile("" : : "r"(x) : "memory");
  memcpy(out + 1000 + 1000 * omp_get_thread_num(), x + 100000, 1000);
  memset(x, 7, 200000); __asm__ volatile("" : : "r"(x) : "memory"); }"""
    )
    program = load(unwritten, 2)
    program.openmp.fill = constant(fill)
    out = np.full(3000, 7, np.uint8)
    program([0], out)
    assert (out == fill).all()


@given(
    functions=st.lists(st.integers(1, 3), min_size=1, max_size=400),
    writable_bytes=st.sampled_from([0, 1000, 1 << 20, 1 << 28]),
)
def test_the_first_and_last_region_of_every_function_are_watched(
    functions: list[int], writable_bytes: int
) -> None:
    regions = [ParallelRegion(i, f) for i, f in enumerate(functions)]
    watched = regions_to_watch(regions, writable_bytes, shares=2)
    assert watched <= set(range(len(regions)))
    for function in set(functions):
        places = [i for i, f in enumerate(functions) if f == function]
        assert {places[0], places[-1]} <= watched
    if writable_bytes <= 1000:
        assert len(watched) == len(regions)


# As WRITES, in the order of shares; both change the middle byte, or write the same there.
ADDS = WRITES.replace("out[p[1] / 2] = p[3]", "out[p[1] / 2] += 1 + omp_get_thread_num()")


@pytest.mark.parametrize("threads", [2, 3, 7])
@pytest.mark.parametrize("body", [WRITES, ADDS])
@pytest.mark.parametrize("overlap", [False, True])
def test_both_orders_show_which_shares_write_one_byte(
    load: Load, body: str, threads: int, overlap: bool
) -> None:
    """No share needs a run of its own for it, and the values of the call are untouched."""
    program, size = load(body, threads), 200_000
    observers = []
    for order, fill in ((forward, 0xFF), (reverse, 0x55)):
        out = np.full(size, fill, np.uint8)
        observer = Observer(order)
        observer.begin([("B", out)], program.openmp)
        program([threads, size, overlap, 3], out)
        assert (out == 3).sum() >= size - 1
        assert observer.complete
        observers.append(observer)
    found = first_conflict(observers[0], observers[1])
    assert (found is not None) == overlap
    if found is not None:
        assert (found.buffer, found.offset_bytes) == ("B", size // 2)
