"""Find races in parallel loops deterministically, by running threads' shares one at a time.

The kernel is loaded against a stand-in for OpenMP, which runs the shares of a parallel region
one after the other on one thread. Three runs settle it:

1. forward: shares 0, 1, ..., n-1;
2. reverse: shares n-1, ..., 0. Both must give the right result. A share that reads what another
   share of the region writes meets, in one of the two orders, poison or a value too new;
3. write sets: before every share, outputs and workspace are filled with 0x55, for a second run
   of the same share with 0xAA, and for further ones with noise; a byte that changed in any was
   written. The stack of whoever entered the region is watched too, filled with what it holds,
   for it has return addresses. A byte equal to what was there each time would have to be a copy
   of itself, or the maximum of itself and something less: noise is there because equal fills
   hide every maximum of one buffer and another. The sets of two shares of one region must not
   meet: this finds what no order shows, such as two threads adding to one sum.

In run 3 values are garbage from the first region on. That is sound because no address in the
language depends on data. Regions are sampled where a kernel enters so many that watching each
costs too much: the first and last call of every region function, and others evenly spread.
Arguments and stacks are all the memory that a kernel can write: `loader.refuse_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .guarded import view_bytes
from .stacks import Stacks
from .stand_in import StandIn

_POISONS = (0x55, 0xAA)
_NOISES = 6
_SMALL_BYTES = 1 << 15  # beyond this, one noise: there are many elements for it to show in
_NOISE_BYTES = 65537  # repeated in larger buffers; a prime, so that rows differ
_WATCH_BYTES = 256 << 20  # bytes filled and compared a candidate: about 50 ms

_POISONED_SHARES = 512  # of a call: filling a stack costs as much as entering ten regions


@dataclass(frozen=True, slots=True)
class Region:
    """One entry into a parallel region: the `index`-th of the call, running `function`.

    What its caller has on the stack is the `frame_bytes` from `frame` on.
    """

    index: int
    function: int
    frame: int = 0
    frame_bytes: int = 0


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
    """Calls kernels that were loaded against the stand-in, on stacks of their own.

    `on_region(region, shares, run)` is called at each region's entry; `run(t)` runs share t of
    `shares`. A region entered from within a share has one share, as in OpenMP by default.
    Stacks are filled with `fill` before each call and before each share.
    """

    def __init__(self, native: StandIn, stacks: Stacks, threads: int = 1) -> None:
        self.threads = threads
        self.regions: list[Region] = []
        self.on_region: Callable[[Region, int, Callable[[int], None]], None] = forward
        self.fill = 0
        self._native = native
        self._stacks = stacks
        self.addresses = native.addresses

    @property
    def stack_ranges(self) -> list[tuple[int, int]]:
        """First address below each stack that no access is allowed to, and where the stack is."""
        stacks = (self._stacks.caller, self._stacks.thread)
        return [(stack.start - stack.guard_bytes, stack.start) for stack in stacks]

    def watch(self, on_region: Callable[[Region, int, Callable[[int], None]], None]) -> None:
        """Start a new call of the kernel whose regions run as `on_region` says."""
        self.regions = []
        self.on_region = on_region

    def call(self, function: int, pointers: Sequence[int]) -> int:
        """`function(*pointers)`: the status it returns."""
        self._stacks.poison(self.fill)
        caller = self._stacks.caller
        fresh = _POISONED_SHARES
        done = self._native.begin(function, pointers, caller.address, caller.size_bytes)
        while not done:
            fresh = self._region(fresh)
            done = self._native.resume()
        return self._native.status

    def _region(self, fresh: int) -> int:
        """Run the region the call stopped at; the first `fresh` shares find their stack filled.
        How many of those are left."""
        native, caller, stack = self._native, self._stacks.caller, self._stacks.thread
        team = min(self.threads, native.asked) if native.asked else self.threads
        frame, end = native.frame, caller.address + caller.size_bytes
        region = Region(len(self.regions), native.region, frame, end - frame)
        self.regions.append(region)
        left = fresh

        def run(thread: int) -> None:
            nonlocal left
            if left > 0:
                stack.view().fill(self.fill)
            left -= 1
            native.share(thread, team, stack.address, stack.size_bytes)

        self.on_region(region, team, run)
        return left


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
        frame = view_bytes(region.frame, region.frame_bytes)
        names = [*(name for name, _ in self._writable), "its caller's stack"]
        sizes = [*(view.size for _, view in self._writable), frame.size]
        owners = [np.full(size, 255, np.uint8) for size in sizes]
        for thread in range(shares):
            changed = self._write_set(thread, run, frame)
            for name, owner, hit in zip(names, owners, changed, strict=True):
                twice = hit & (owner != 255)
                if twice.any():
                    at = int(twice.argmax())
                    self.conflict = Conflict(region.index, name, at, (int(owner[at]), thread))
                    return
                owner[hit] = thread

    def _write_set(
        self, thread: int, run: Callable[[int], None], frame: NDArray[np.uint8]
    ) -> list[NDArray[np.bool_]]:
        """Which bytes of each buffer, and of `frame` at last, share `thread` writes."""
        sizes = [*(view.size for _, view in self._writable), frame.size]
        changed = [np.zeros(size, np.bool_) for size in sizes]
        held = frame.copy()
        for fill in self._fills:
            before = [_repeated(fill, view.size) for _, view in self._writable]
            for (_, view), filled in zip(self._writable, before, strict=True):
                view[:] = filled
            run(thread)
            views = [*(view for _, view in self._writable), frame]
            for view, filled, hit in zip(views, [*before, held], changed, strict=True):
                np.logical_or(hit, view != filled, out=hit)
            frame[:] = held
        return changed
