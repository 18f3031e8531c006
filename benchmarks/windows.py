"""The windows of a convolution or a pooling, read from a case's sizes: for the peers of both
libraries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

AXES = {1: "L", 2: "HW", 3: "DHW"}
"""Letters of the window axes, by how many there are."""


@dataclass(frozen=True, slots=True)
class Windows:
    """One entry an axis."""

    taps: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]

    @staticmethod
    def of(sizes: Mapping[str, int], rank: int) -> Windows:
        """`K`, or `KH` and `KW`; `pad`, or `pad_h` and `pad_w`; and so on."""
        axes = AXES[rank]

        def each(name: str, default: int) -> tuple[int, ...]:
            general = sizes.get(name, default)
            return tuple(sizes.get(f"{name}_{axis.lower()}", general) for axis in axes)

        taps = tuple(sizes.get(f"K{axis}", sizes.get("K", 1)) for axis in axes)
        return Windows(taps, each("stride", 1), each("pad", 0), each("dilation", 1))

    @property
    def spans(self) -> tuple[int, ...]:
        """How far a window reaches along each axis."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.taps, self.dilation, strict=True))

    @property
    def pointwise(self) -> bool:
        """Whether every output reads exactly the input at its own place."""
        ones = {*self.taps, *self.stride}
        return ones == {1} and not any(self.pad)

    def and_a_point(self) -> Windows:
        """The same with one more axis, along which nothing slides."""
        return Windows((*self.taps, 1), (*self.stride, 1), (*self.pad, 0), (*self.dilation, 1))
