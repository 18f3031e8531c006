"""Stores to arrays in memory: one element, or one element per lane of a vector axis.

Stores of vectors may be masked, scattered or non-temporal.
"""

from __future__ import annotations

import re
from math import gcd

from tilewright.schedules.algebra.affine import Affine
from tilewright.schedules.dtypes import DType

from .addresses import Addresses, Array, aligned_to
from .indices import VectorAxis
from .values import Val, scalar_type, suffix


class ArrayStores(Addresses):
    """A writer of store instructions. Lanes in which a mask is false do not access memory."""

    def one(self, place: Array, offset: Affine, value: Val) -> None:
        """Store one element."""
        pointer = self.pointer(place, offset)
        self.text.add(f"  store {value.typed}, ptr {pointer}, align {aligned_to(place, offset, 1)}")

    def lanes(
        self,
        place: Array,
        offset: Affine,
        value: Val,
        axis: VectorAxis,
        where: Val | None,
        streamed: bool,
    ) -> None:
        """Store one element per lane of `axis`. The stores are non-temporal if `streamed` and if
        the address is aligned."""
        dtype, lanes = value.dtype, axis.lanes
        base = offset.minus_var(axis.var)
        if not base.mentions(axis.var):
            pointer = self.pointer(place, base)
            align = aligned_to(place, base, lanes)
            if where is None:
                plain = f"  store {value.typed}, ptr {pointer}, align {align}"
                if streamed:
                    self._store_streamed(place, value, pointer, plain)
                else:
                    self.text.add(plain)
                return
            only = _only_lane(where)
            if only is not None:
                # LLVM 22 on x86 replaces a masked store of one lane of a truncated vector by a
                # scalar store of the wider type, which overwrites the next element.
                element = self.text.assign(f"extractelement {value.typed}, i64 {only}")
                one = self.pointer(place, self.lane(offset, axis, only))
                self.text.add(
                    f"  store {scalar_type(dtype)} {element}, ptr {one}, align {dtype.bytes}"
                )
                return
            function = self.module.intrinsic(
                f"llvm.masked.store.{suffix(dtype, lanes)}.p0",
                "void",
                (value.type, "ptr", where.type),
            )
            self.text.add(
                f"  call void {function}({value.typed}, ptr align {align} {pointer}, {where.typed})"
            )
            return
        pointers = "poison"
        for lane in range(lanes):
            one = self.pointer(place, self.lane(offset, axis, lane))
            if where is None:
                element = self.text.assign(f"extractelement {value.typed}, i64 {lane}")
                self.text.add(
                    f"  store {scalar_type(dtype)} {element}, ptr {one}, align {dtype.bytes}"
                )
            else:
                pointers = self.text.assign(
                    f"insertelement <{lanes} x ptr> {pointers}, ptr {one}, i64 {lane}", "p"
                )
        if where is not None:
            function = self.module.intrinsic(
                f"llvm.masked.scatter.{suffix(dtype, lanes)}.v{lanes}p0",
                "void",
                (value.type, f"<{lanes} x ptr>", where.type),
            )
            self.text.add(
                f"  call void {function}({value.typed}, <{lanes} x ptr> align {dtype.bytes}"
                f" {pointers}, {where.typed})"
            )

    def keeps_alignment(self, place: Array, offset: Affine, axis: VectorAxis) -> bool:
        """Return whether non-temporal stores are possible for all unrolled copies of a store.

        The target must have them for vectors of this size, and each vector must be aligned if the
        array is aligned. Either all copies are non-temporal or none, because a cache line of which
        only a part is stored non-temporally costs more.
        """
        size = place.buffer.dtype.bytes
        rest = offset.minus_var(axis.var)
        step = gcd(rest.const * size, *(c * size for _, c in rest.terms))
        whole = size * axis.lanes
        return step % whole == 0 and whole in self.module.instructions.streams

    def _store_streamed(self, place: Array, value: Val, pointer: str, plain: str) -> None:
        """Store non-temporally if the array is aligned, otherwise by the ordinary store `plain`.
        The alignment is tested at run time, once for all stores to the array."""
        text, whole = self.text, place.buffer.dtype.bytes * value.lanes
        memo = text.levels[0].memo
        key = ("aligned", place.base, whole)
        if key not in memo:
            address = text.assign(f"ptrtoint ptr {place.base} to i64", "w", 0)
            low = text.assign(f"and i64 {address}, {whole - 1}", "w", 0)
            memo[key] = Val(text.assign(f"icmp eq i64 {low}, 0", "c", 0), DType.BOOL)
        past, through, done = text.label("past"), text.label("through"), text.label("done")
        text.add(f"  br i1 {memo[key].name}, label %{past}, label %{through}")
        text.start_block(past)
        mark = self.module.nontemporal()
        text.add(f"  store {value.typed}, ptr {pointer}, align {whole}, !nontemporal {mark}")
        text.add(f"  br label %{done}")
        text.start_block(through)
        text.add(plain)
        text.add(f"  br label %{done}")
        text.start_block(done)


def _only_lane(mask: Val) -> int | None:
    """Return the only lane in which a constant mask is true, or None for any other mask."""
    lanes = re.findall(r"i1 (true|false)", mask.name) if mask.name.startswith("<") else []
    return lanes.index("true") if lanes.count("true") == 1 else None
