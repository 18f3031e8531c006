"""Find races in parallel loops deterministically, by running threads' shares one at a time.

The kernel is loaded against a stand-in for OpenMP, which runs the shares of a parallel region
one after the other on one thread. Three runs settle it:

1. forward: shares 0, 1, ..., n-1;
2. reverse: shares n-1, ..., 0. Both must give the right result. A share that reads what another
   share of the region writes meets, in one of the two orders, poison or a value too new;
3. write sets: before every share, outputs and workspace are filled with 0x55, for a second run
   of the same share with 0xAA, and for further ones with noise; a byte that changed in any was
   written. A byte equal to what was there each time would have to be a copy of itself, or the
   maximum of itself and something less: noise is there because equal fills hide every maximum
   of one buffer and another. The sets of two shares of one region must not meet: this finds
   what no order shows, such as two threads adding to one sum.

In run 3 values are garbage from the first region on. That is sound because no address in the
language depends on data. Regions are sampled where a kernel enters so many that watching each
costs too much: the first and last call of every region function, and others evenly spread.
Writes through the stack of the caller are not watched.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_POISONS = (0x55, 0xAA)
_NOISES = 6
_SMALL_BYTES = 1 << 15  # beyond this, one noise: there are many elements for it to show in
_NOISE_BYTES = 65537  # repeated in larger buffers; a prime, so that rows differ
_WATCH_BYTES = 256 << 20  # bytes filled and compared a candidate: about 50 ms

_Share = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Parallel = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint
)  # fmt: skip
_Number = ctypes.CFUNCTYPE(ctypes.c_int)


@dataclass(frozen=True, slots=True)
class Region:
    """One entry into a parallel region: the `index`-th of the call, running `function`."""

    index: int
    function: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two shares of one region write the same byte."""

    region: int
    buffer: str
    offset_bytes: int
    shares: tuple[int, int]

    def __str__(self) -> str:
        first, second = self.shares
        return (
            f"threads {first} and {second} both write byte {self.offset_bytes} of {self.buffer} "
            f"in parallel region {self.region}"
        )


class SerialOpenMP:
    """The stand-in: `addresses` are what `loader.use_openmp` takes.

    `on_region(region, shares, run)` is called at each region's entry; `run(t)` runs share t of
    `shares`. A region entered from within a share has one share, as in OpenMP by default.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.regions: list[Region] = []
        self.on_region: Callable[[Region, int, Callable[[int], None]], None] = forward
        self._thread, self._team = 0, 1
        self._inside = False
        self._callbacks = (
            _Parallel(self._parallel),
            _Number(lambda: self._thread),
            _Number(lambda: self._team),
        )
        names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
        self.addresses = {
            name: ctypes.cast(callback, ctypes.c_void_p).value or 0
            for name, callback in zip(names, self._callbacks, strict=True)
        }

    def watch(self, on_region: Callable[[Region, int, Callable[[int], None]], None]) -> None:
        """Start a new call of the kernel whose regions run as `on_region` says."""
        self.regions = []
        self.on_region = on_region

    def _parallel(self, function: int, data: int, asked: int, flags: int) -> None:
        share = _Share(function)
        if self._inside:
            outer = self._thread, self._team
            self._thread, self._team = 0, 1
            share(data)
            self._thread, self._team = outer
            return
        team = min(self.threads, asked) if asked else self.threads
        region = Region(len(self.regions), function)
        self.regions.append(region)

        def run(thread: int) -> None:
            self._thread, self._team = thread, team
            share(data)

        self._inside = True
        self.on_region(region, team, run)
        self._inside = False
        self._thread, self._team = 0, 1


def forward(region: Region, shares: int, run: Callable[[int], None]) -> None:
    """Run shares 0, 1, ..., n-1."""
    for thread in range(shares):
        run(thread)


def reverse(region: Region, shares: int, run: Callable[[int], None]) -> None:
    """Run shares n-1, ..., 1, 0."""
    for thread in reversed(range(shares)):
        run(thread)


def regions_to_watch(regions: Sequence[Region], writable_bytes: int, shares: int) -> frozenset[int]:
    """Indices of the regions whose write sets are worth their cost; all of them if affordable."""
    each = max(1, writable_bytes * 2 * len(_fills(writable_bytes)) * shares)
    count = max(1, _WATCH_BYTES // each)
    if len(regions) <= count:
        return frozenset(range(len(regions)))
    chosen = set(np.linspace(0, len(regions) - 1, count).astype(int).tolist())
    ends: dict[int, list[int]] = {}
    for region in regions:
        ends.setdefault(region.function, [region.index, region.index])[1] = region.index
    return frozenset(chosen.union(*ends.values()))


def find_conflict(
    call: Callable[[], object],
    openmp: SerialOpenMP,
    writable: Sequence[tuple[str, NDArray[np.uint8]]],
    watched: frozenset[int],
) -> Conflict | None:
    """The first byte two shares of a watched region write, None if there is none.

    `call` runs the kernel, which was loaded against `openmp`; `writable` are its outputs and
    workspace as (name, bytes), garbage afterwards. A team so large that watching one region
    costs too much is made smaller, to two at least.
    """
    watcher = _Watcher(writable, watched)
    team = openmp.threads
    size = sum(view.size for _, view in writable)
    affordable = _WATCH_BYTES // max(1, 2 * len(_fills(size)) * size)
    openmp.threads = min(team, max(2, affordable))
    openmp.watch(watcher.on_region)
    call()
    openmp.threads = team
    return watcher.conflict


def _fills(writable_bytes: int) -> list[NDArray[np.uint8]]:
    """What buffers are filled with before a share is run to see what it writes, repeated."""
    noises = []
    rng = np.random.default_rng(0)
    for _ in range(_NOISES // 2):
        noise = rng.integers(0, 256, _NOISE_BYTES, np.uint8)
        noises += [noise, noise ^ 0x80]  # signs turned round: what was the greater is the less
    constant = [np.full(1, poison, np.uint8) for poison in _POISONS]
    return constant + (noises if writable_bytes <= _SMALL_BYTES else noises[:1])


def _repeated(fill: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    # Not `np.resize`: it joins a list of as many arrays as there are repetitions.
    if fill.size == 1:
        return np.full(size, fill[0], np.uint8)
    return np.tile(fill, -(-size // fill.size))[:size]


class _Watcher:
    def __init__(
        self, writable: Sequence[tuple[str, NDArray[np.uint8]]], watched: frozenset[int]
    ) -> None:
        self._writable = writable
        self._watched = watched
        self.conflict: Conflict | None = None
        self._fills = _fills(sum(view.size for _, view in writable))

    def on_region(self, region: Region, shares: int, run: Callable[[int], None]) -> None:
        if region.index not in self._watched or self.conflict is not None:
            return
        # One byte of account for each of the kernel's: the share that wrote it, 255 for none.
        owners = [np.full(view.size, 255, np.uint8) for _, view in self._writable]
        for thread in range(shares):
            changed = self._write_set(thread, run)
            for (name, _), owner, hit in zip(self._writable, owners, changed, strict=True):
                twice = hit & (owner != 255)
                if twice.any():
                    at = int(twice.argmax())
                    self.conflict = Conflict(region.index, name, at, (int(owner[at]), thread))
                    return
                owner[hit] = thread

    def _write_set(self, thread: int, run: Callable[[int], None]) -> list[NDArray[np.bool_]]:
        """Which bytes of each buffer share `thread` writes."""
        changed = [np.zeros(view.size, np.bool_) for _, view in self._writable]
        for fill in self._fills:
            before = [_repeated(fill, view.size) for _, view in self._writable]
            for (_, view), filled in zip(self._writable, before, strict=True):
                view[:] = filled
            run(thread)
            for (_, view), filled, hit in zip(self._writable, before, changed, strict=True):
                np.logical_or(hit, view != filled, out=hit)
        return changed
