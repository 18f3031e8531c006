"""Deterministic detection of data races in parallel regions.

The *share* of a thread is the part of a parallel region that it executes. The kernel is linked to a
stand-in for OpenMP, which runs the shares of a region one after the other on one thread. There are
four kinds of runs:

1. Forward: shares 0, 1, ..., n-1.
2. Reverse: shares n-1, ..., 0. Both orders must give the right result. If a share reads data that
   another share of the region writes, then in one of the two orders it reads poison or a value that
   is too new. The bytes that each share changes are recorded (`Observer`). If two shares write
   different values to a byte, both change it in one order. If they write the same value, only the
   first share of each order changes it, but the first shares of the two orders are different. A
   byte that already contains the value is not detected, for example the target of adding zero.
   Because the two runs have different poisons, such a byte was written before the region.
3. Write sets, in the full check, for a fast kernel, and if runs 1 and 2 observed only some regions.
   Before every share, outputs and workspace are filled with 0x55. The share runs again with fills
   of 0xAA and of random bytes. A byte that changed in any of these runs was written. The stack of
   the region's caller is observed too, with its real content, because it contains return addresses.
   A write is not detected only if its value depends on the old byte: a copy of it, or the maximum
   of it and a smaller value. Random bytes are needed because constant fills hide the maximum of two
   buffers. The write sets of two shares of a region must be disjoint. This finds races that no
   order reveals, such as two threads that add to one sum.
4. Stores, in the full check. A share may load bytes of another share and store them back unchanged.
   That changes nothing in the runs above, but overwrites the other share's write if both run
   concurrently. Therefore each share runs with up to 16 read-only pages or ranges of pages: at the
   borders to bytes of other shares, and where it has no bytes. Single stores to them are observed
   (`loading.store_watch`).

In runs of kind 3, values are garbage from the first region on. That is harmless, because no address
in the loop IR depends on data. If observing all regions costs too much, the first and the last call
of every region function are observed, and further calls at even distances. A kernel can write only
its arguments and stacks (`loader.refuse_state`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.arrays import distinct

from ....process import linux
from ..loading.byte_changes import BLOCK_BYTES, ByteChanges, ByteSet
from ..loading.stand_in import StandIn
from ..loading.store_watch import MAX_WINDOWS, StoreWatch, WatchedPages
from ..memory.fills import constant
from ..memory.guarded import LINE_BYTES, view_bytes
from ..memory.stacks import Stacks

_POISONS = (0x55, 0xAA)
_NOISES = 6
# larger memory gets one random fill, because any write then changes some bytes
_SMALL_BYTES = 1 << 15
# length of the random fill, which repeats in larger buffers; a prime, so that rows differ
_NOISE_BYTES = 65537
WATCH_BYTES = 256 << 20  # bytes filled and compared per candidate: about 50 ms
_MAX_SHARES = 254  # the owner of each byte is stored in one byte
_WORD_BYTES = 8
_STORES = 8000  # number of stores observed per call, about 5 us each
_MIN_STORES = 200
_POISONED_SHARES = 512  # per call, because filling a stack costs as much as entering ten regions


@dataclass(frozen=True, slots=True)
class ParallelRegion:
    """A parallel region that a call enters."""

    index: int
    """Its number in the order of entry, from 0."""
    function: int
    """The address of the function that the threads run."""
    frame: int = 0
    """The lowest address of the stack frames of the region's caller."""
    frame_bytes: int = 0
    """The size of these stack frames."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A byte that two shares of one region both write."""

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
    """A caller of kernels that are linked to the OpenMP stand-in, on dedicated stacks.

    At the entry of each region, `on_region(region, shares, run)` is called, and `run(t)` runs share
    t of `shares`. A nested region has one share, as in OpenMP by default. Stacks are filled with
    `fill` before each call and before each share.
    """

    def __init__(self, native: StandIn, stacks: Stacks, threads: int = 1) -> None:
        self.threads = threads
        self.regions: list[ParallelRegion] = []
        self.on_region: Callable[[ParallelRegion, int, Callable[[int], None]], None] = forward
        self.fill = constant(0)
        self._native = native
        self._stacks = stacks
        self.changes = native.changes

    @property
    def stack_ranges(self) -> list[tuple[int, int]]:
        """The inaccessible range below each stack, as (its first address, start of the stack)."""
        stacks = (self._stacks.caller, self._stacks.thread)
        return [(stack.start - stack.guard_bytes, stack.start) for stack in stacks]

    def watch(
        self, on_region: Callable[[ParallelRegion, int, Callable[[int], None]], None]
    ) -> None:
        """Prepare a new call of the kernel. `on_region` is called for each of its regions."""
        self.regions = []
        self.on_region = on_region

    def call(self, function: int, pointers: Sequence[int], *, fresh: bool = True) -> int:
        """Call `function(*pointers)` and return its status. If `fresh`, stacks are refilled
        first."""
        if fresh:
            self._stacks.poison(self.fill)
        caller = self._stacks.caller
        filled = _POISONED_SHARES if fresh else 0
        done = self._native.begin(function, pointers, caller.address, caller.size_bytes)
        while not done:
            filled = self._region(filled)
            done = self._native.resume()
        return self._native.status

    def _region(self, fresh: int) -> int:
        """Run the region at which the call stopped. Return the number of stack fills that remain.

        Only the first `fresh` shares get a filled stack.
        """
        native, caller, stack = self._native, self._stacks.caller, self._stacks.thread
        team = min(self.threads, native.requested_threads or self.threads)
        frame, end = native.frame, caller.address + caller.size_bytes
        region = ParallelRegion(len(self.regions), native.region, frame, end - frame)
        self.regions.append(region)
        unfilled = fresh

        def run(thread: int) -> None:
            nonlocal unfilled
            if unfilled > 0:
                self.fill.into(stack.view())
            unfilled -= 1
            native.share(thread, team, stack.address, stack.size_bytes)

        self.on_region(region, team, run)
        return unfilled


def forward(region: ParallelRegion, shares: int, run: Callable[[int], None]) -> None:
    """Run shares 0, 1, ..., n-1."""
    for thread in range(shares):
        run(thread)


def reverse(region: ParallelRegion, shares: int, run: Callable[[int], None]) -> None:
    """Run shares n-1, ..., 1, 0."""
    for thread in reversed(range(shares)):
        run(thread)


class Observer:
    """Runs the shares of each region in the given order, and records the bytes that each share
    changes.

    The results of the kernel stay the same. Regions are observed in the order in which they start,
    until `most_bytes` bytes were compared. `complete` is true if no region was left out. An
    observer reuses the buffers of `other`, an earlier observer.
    """

    def __init__(
        self,
        order: Callable[[ParallelRegion, int, Callable[[int], None]], None],
        other: Observer | None = None,
        *,
        most_bytes: int = WATCH_BYTES,
    ) -> None:
        self._most_bytes = most_bytes
        self._spare: list[NDArray[np.uint8]] = [] if other is None else other._spare
        self.accounts: dict[int, list[_Account]] = {}
        self.conflict: Conflict | None = None
        self.complete = True
        self._order = order
        self._left_bytes = 0

    def begin(
        self, writable: Sequence[tuple[str, NDArray[np.uint8]]], openmp: SerialOpenMP
    ) -> None:
        """Observe the next call of the kernel of `openmp`. `writable` lists the memory that it can
        write, as (name, bytes)."""
        self._writable = writable
        self._changes = openmp.changes
        self._left_bytes = self._most_bytes
        openmp.watch(self._on_region)

    def _on_region(self, region: ParallelRegion, shares: int, run: Callable[[int], None]) -> None:
        if shares == 1:
            self._order(region, shares, run)
            return
        frame = ("its caller's stack", view_bytes(region.frame, region.frame_bytes))
        watched = [*self._writable, frame]
        self._left_bytes -= sum(view.size for _, view in watched) * shares
        if self._left_bytes < 0:
            self.complete = False
            self._order(region, shares, run)
            return
        copies = [self._copy(view) for _, view in watched]
        accounts = [_Account(name, view.size) for name, view in watched]
        self.accounts[region.index] = accounts

        def run_and_look(thread: int) -> None:
            run(thread)
            for account, (_, view), copy in zip(accounts, watched, copies, strict=True):
                written = ByteSet.empty(view.size)
                self._changes.against_copy(view, copy, written)
                met = account.claim(thread, written)
                if met is not None and self.conflict is None:
                    self.conflict = Conflict(region.index, account.name, *met)

        self._order(region, shares, run_and_look)
        self._spare += copies

    def _copy(self, view: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return a copy of `view`. It uses the memory of an earlier region if the size is the
        same."""
        for n, spare in enumerate(self._spare):
            if spare.size == view.size:
                del self._spare[n]
                spare[:] = view
                return spare
        return view.copy()


class _Account:
    """The bytes of the buffer `name` that each share wrote, as (share, bytes)."""

    def __init__(self, name: str, size_bytes: int) -> None:
        self.name = name
        self.written: list[tuple[int, ByteSet]] = []
        self._all = ByteSet.empty(size_bytes)

    def claim(self, thread: int, written: ByteSet) -> tuple[int, tuple[int, int]] | None:
        """Record `written` as written by share `thread`. Return a byte that another share has also
        written, with both shares, or None if there is none."""
        meets = self._all.first_common(written) is not None
        met = _meeting(self.written, [(thread, written)]) if meets else None
        self.written.append((thread, written))
        self._all.add(written)
        return met

    def owners(self) -> NDArray[np.uint8]:
        """Return the number of the share + 1 for each byte of the buffer, or 0 if no share wrote
        it."""
        owners = np.zeros(self._all.size_bytes, np.uint8)
        for thread, written in self.written:
            owners[written.mask()] = thread + 1
        return owners


def _meeting(
    some: Sequence[tuple[int, ByteSet]], others: Sequence[tuple[int, ByteSet]]
) -> tuple[int, tuple[int, int]] | None:
    """Return a byte that is in both lists with different shares, and the two shares. Return None if
    there is none."""
    for first, one in some:
        for second, other in others:
            at = one.first_common(other) if first != second else None
            if at is not None:
                return at, (first, second)
    return None


def first_conflict(forward: Observer, reverse: Observer, *, alike: bool = True) -> Conflict | None:
    """Return a byte that two shares of a region changed, or None.

    The changes of each order are compared separately. The changes of both orders are compared
    together only if `alike`: arrays have the same offsets in their cache lines in both runs. A
    kernel may divide its work among threads by these offsets.
    """
    for observer in (forward, reverse):
        if observer.conflict is not None:
            return observer.conflict
    if not alike:
        return None
    for index in sorted(forward.accounts.keys() & reverse.accounts.keys()):
        for a, b in zip(forward.accounts[index], reverse.accounts[index], strict=True):
            met = _meeting(a.written, b.written)
            if met is not None:
                return Conflict(index, a.name, *met)
    return None


def regions_to_watch(
    regions: Sequence[ParallelRegion], writable_bytes: int, shares: int
) -> frozenset[int]:
    """Return the indices of the regions to observe: all regions, or a sample if all cost too
    much."""
    each = max(1, writable_bytes * 2 * len(share_fills(writable_bytes)) * shares)
    count = max(1, WATCH_BYTES // each)
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
    stores: StoreWatch | None = None,
) -> Conflict | None:
    """Return the first byte that two shares of a watched region write, or None.

    `call` runs the kernel, which is linked to `openmp`. `writable` lists the outputs and the
    workspace as (name, bytes), which contain garbage afterwards. If one region costs too much, the
    team size is reduced, down to two. With `stores`, a store to bytes of another share is found
    even if the value stays the same. Each buffer of `writable` must then have dedicated pages.
    """
    watcher = _Watcher(writable, watched, stores, openmp.changes)
    team = openmp.threads
    size = sum(view.size for _, view in writable)
    affordable = WATCH_BYTES // max(1, 2 * len(share_fills(size)) * size)
    openmp.threads = min(team, max(2, affordable), _MAX_SHARES)
    openmp.watch(watcher.on_region)
    call()
    openmp.threads = team
    return watcher.conflict


def share_fills(writable_bytes: int) -> tuple[NDArray[np.uint8], ...]:
    """Return the fills for buffers before runs of a share. Larger buffers repeat the first
    `_NOISE_BYTES` bytes of a fill; its other bytes are those at its beginning.

    The first call computes them. A process calls this before it forks, so that its children find
    them.
    """
    every = _every_fill()
    return every if writable_bytes <= _SMALL_BYTES else every[: len(_POISONS) + 1]


@cache
def _every_fill() -> tuple[NDArray[np.uint8], ...]:
    noises = []
    rng = np.random.default_rng(0)
    for _ in range(_NOISES // 2):
        noise = rng.integers(0, 256, _NOISE_BYTES, np.uint8)
        # The opposite sign bits reverse the order of any two numbers.
        noises += [noise, noise ^ 0x80]
    constant = [np.full(_NOISE_BYTES, poison, np.uint8) for poison in _POISONS]
    return tuple(np.append(fill, fill[:BLOCK_BYTES]) for fill in (*constant, *noises))


class _Watcher:
    def __init__(
        self,
        writable: Sequence[tuple[str, NDArray[np.uint8]]],
        watched: frozenset[int],
        stores: StoreWatch | None,
        changes: ByteChanges,
    ) -> None:
        self._stores = stores
        self._changes = changes
        self._writable = writable
        self._watched = watched
        self.conflict: Conflict | None = None
        self._fills = share_fills(sum(view.size for _, view in writable))

    def on_region(self, region: ParallelRegion, shares: int, run: Callable[[int], None]) -> None:
        if region.index not in self._watched or self.conflict is not None:
            return
        frame = view_bytes(region.frame, region.frame_bytes)
        views = [*self._writable, ("its caller's stack", frame)]
        accounts = [_Account(name, view.size) for name, view in views]
        for thread in range(shares):
            for account, written in zip(
                accounts, self._write_sets(run, thread, frame), strict=True
            ):
                met = account.claim(thread, written)
                if met is not None:
                    self.conflict = Conflict(region.index, account.name, *met)
                    return
        if self._stores is not None and shares > 1:
            owners = [account.owners() for account in accounts]
            self._watch_stores(self._stores, region, shares, run, owners)

    def _watch_stores(
        self,
        stores: StoreWatch,
        region: ParallelRegion,
        shares: int,
        run: Callable[[int], None],
        owners: Sequence[NDArray[np.uint8]],
    ) -> None:
        """Run each share with read-only pages at the borders to bytes of other shares, to observe
        its stores."""
        views = [(view, owner) for (_, view), owner in zip(self._writable, owners, strict=False)]
        borders = [Borders.of(owner) for _, owner in views]
        most = max(_MIN_STORES, _STORES // (len(self._watched) * shares))
        for thread in range(shares):
            windows = [
                window
                for (view, owner), border in zip(views, borders, strict=True)
                for window in border.windows(view, owner, thread, MAX_WINDOWS // len(views))
            ]
            at = stores.foreign_store(partial(run, thread), windows, most)
            if at is not None:
                self.conflict = self._conflict(region, at, thread, views)
                return

    def _conflict(
        self,
        region: ParallelRegion,
        address: int,
        thread: int,
        views: Sequence[tuple[NDArray[np.uint8], NDArray[np.uint8]]],
    ) -> Conflict:
        """Return the conflict of share `thread` with the owner of the bytes at `address`."""
        for (name, view), (_, owner) in zip(self._writable, views, strict=True):
            start = address - view.ctypes.data
            if -_WORD_BYTES < start < view.size:
                word = range(max(start, 0), min(start + _WORD_BYTES, view.size))
                offset = next(n for n in word if owner[n] not in (0, thread + 1))
                return Conflict(region.index, name, offset, (int(owner[offset]) - 1, thread))
        raise AssertionError(f"no writable buffer at {address:#x}")

    def _write_sets(
        self, run: Callable[[int], None], thread: int, frame: NDArray[np.uint8]
    ) -> list[ByteSet]:
        """Return the bytes that share `thread` writes, in each buffer and in `frame`."""
        written = [ByteSet.empty(view.size) for _, view in self._writable]
        of_frame, saved = ByteSet.empty(frame.size), frame.copy()
        for fill in self._fills:
            for _, view in self._writable:
                for start in range(0, view.size, _NOISE_BYTES):
                    view[start : start + _NOISE_BYTES] = fill[
                        : min(_NOISE_BYTES, view.size - start)
                    ]
            run(thread)
            for (_, view), found in zip(self._writable, written, strict=True):
                self._changes.against_fill(view, fill, _NOISE_BYTES, found)
            self._changes.against_copy(frame, saved.copy(), of_frame)
            frame[:] = saved
        return [*written, of_frame]


@dataclass(frozen=True, slots=True)
class Borders:
    """The borders between bytes of different shares, as index arrays.

    Bytes without an owner may be between `left` and `right`.
    """

    left: NDArray[np.int64]
    """The last byte of one share."""
    right: NDArray[np.int64]
    """The first byte of the next share."""

    @classmethod
    def of(cls, owner: NDArray[np.uint8]) -> Borders:
        """Return the borders in a buffer. `owner` has the number of the share + 1 for each byte, or
        0 if no share wrote it."""
        steps = np.flatnonzero(owner[1:] != owner[:-1]) + 1
        starts = np.concatenate([[0], steps]).astype(np.int64)
        ends = np.concatenate([steps, [owner.size]]).astype(np.int64)
        if owner.size == 0:
            return cls(starts[:0], starts[:0])
        owned = owner[starts] != 0
        starts, ends = starts[owned], ends[owned]
        apart = owner[starts[1:]] != owner[starts[:-1]]
        return cls(ends[:-1][apart] - 1, starts[1:][apart])

    def windows(
        self, view: NDArray[np.uint8], owner: NDArray[np.uint8], thread: int, most: int
    ) -> list[WatchedPages]:
        """Return up to `most` ranges of pages of `view` to observe while share `thread` runs.

        They are pages at borders of the share, which include the first and the last border, and the
        longest ranges of pages that contain no byte of the share.
        """
        mark, size = thread + 1, linux.PAGE_BYTES
        neighbours = [self.right[owner[self.left] == mark], self.left[owner[self.right] == mark]]
        places, start = np.concatenate(neighbours), view.ctypes.data
        reach = np.concatenate([places - LINE_BYTES, places + LINE_BYTES])
        met = distinct((start + np.clip(reach, 0, view.size - 1)) // size * size)
        wanted = most * 3 // 4
        if met.size > wanted:
            met = met[np.linspace(0, met.size - 1, wanted).astype(np.int64)]
        pages = set(met.tolist())
        mixed = [WatchedPages(p, size, _others(p, start, owner, mark)) for p in sorted(pages)]
        rows = [_without(row, pages) for row in self._others_pages(start, owner, mark)]
        rows = sorted((r for r in rows if r[0] < r[1]), key=lambda row: row[0] - row[1])
        alone = [WatchedPages(at, end - at) for at, end in rows]
        return (mixed + alone)[:most]

    def _others_pages(
        self, start: int, owner: NDArray[np.uint8], mark: int
    ) -> Iterator[tuple[int, int]]:
        """Yield the start and the end of each range of whole pages whose bytes all belong to other
        shares.

        `start` is the address of the buffer, and `mark` is the number of this share + 1.
        """
        size = linux.PAGE_BYTES
        firsts, lasts = [0, *self.right.tolist()], [*self.left.tolist(), owner.size - 1]
        for first, last in zip(firsts, lasts, strict=True):
            if owner.size == 0 or max(owner[first], owner[last]) in (0, mark):
                continue
            # The first and the last page of the buffer contain no other data.
            low = start if first == 0 else start + first + size - 1
            high = start + last + (size if last == owner.size - 1 else 1)
            if low // size < high // size:
                yield low // size * size, high // size * size


def _without(row: tuple[int, int], pages: set[int]) -> tuple[int, int]:
    """Return the longest part of the page range `row` that contains none of `pages`."""
    size = linux.PAGE_BYTES
    cuts = [row[0] - size, *sorted(p for p in pages if row[0] <= p < row[1]), row[1]]
    return max(((a + size, b) for a, b in pairwise(cuts)), key=lambda part: part[1] - part[0])


def _others(page: int, start: int, owner: NDArray[np.uint8], mark: int) -> NDArray[np.uint8]:
    """Return a mask of the page at address `page`: 0xFF for each byte that other shares write.

    `start` is the address of the buffer, and `mark` is the number of this share + 1.
    """
    others = np.zeros(linux.PAGE_BYTES, np.uint8)
    first, last = max(page, start), min(page + linux.PAGE_BYTES, start + owner.size)
    part = owner[first - start : last - start]
    others[first - page : last - page] = ((part != 0) & (part != mark)) * np.uint8(0xFF)
    return others
