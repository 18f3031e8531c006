"""The class of a float (NaN, an infinity of either sign, finite), and outputs held to one each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from schedules.algebra.narrow import widened
from schedules.reference.boxes import MAX_BOX_POINTS, over_boxes
from schedules.reference.reads import Box
from schedules.workload.tensors import Tensor

Array = npt.NDArray[Any]
Classes = npt.NDArray[np.uint8]
T = TypeVar("T")

NOT_PROMISED, FINITE, NOT_A_NUMBER, PLUS_INFINITY, MINUS_INFINITY = range(5)
_NAMES = ("anything", "a finite number", "NaN", "inf", "-inf")


@dataclass(frozen=True, slots=True)
class Promised:
    """What one output must be, element by element: a class, and at zeros a sign.

    `signs` is -1 or 1 where a zero has that sign, 0 elsewhere; None where none is promised.
    """

    tensor: Tensor
    classes: Classes
    signs: npt.NDArray[np.int8] | None

    def wrong(self, output: Array) -> str | None:
        """None if every element of `output` is as promised, else the first that is not."""
        got = widened(output, self.tensor.dtype)
        flat, classes = got.reshape(-1), self.classes.reshape(-1)
        signs = None if self.signs is None else self.signs.reshape(-1)
        wrong = np.zeros(flat.size, np.bool_)
        for part in parts(flat.size):
            found = part_classes(flat[part], np.inf)
            wrong[part] = (classes[part] != found) & (classes[part] != NOT_PROMISED)
            if signs is not None:
                sign, number = signs[part], flat[part]
                wrong[part] |= (sign != 0) & ((number != 0) | (np.signbit(number) != (sign < 0)))
        return self._describe(got, wrong.reshape(got.shape)) if wrong.any() else None

    def _describe(self, got: Array, wrong: npt.NDArray[np.bool_]) -> str:
        where = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        index = ", ".join(str(int(i)) for i in where)
        wanted = _NAMES[self.classes[where]]
        if self.signs is not None and self.signs[where]:
            wanted = "-0.0" if self.signs[where] < 0 else "0.0"
        return (
            f"{self.tensor.name}[{index}] is {float(got[where])!r}, expected {wanted}; "
            f"{int(wrong.sum())} of {wrong.size} elements are wrong"
        )


def classes_of(values: Array, largest: float) -> Classes:
    """The class of each element; finite ones beyond `largest` are not promised."""
    flat = values.reshape(-1)
    classes = np.empty(flat.size, np.uint8)

    def fill(part: slice) -> None:
        classes[part] = part_classes(flat[part], largest)

    over_parts(fill, flat.size)
    return classes.reshape(values.shape)


def part_classes(values: Array, largest: float) -> Classes:
    classes = np.full(values.shape, FINITE, np.uint8)
    finite = np.isfinite(values)
    if not finite.all():
        classes[np.isnan(values)] = NOT_A_NUMBER
        classes[values == np.inf] = PLUS_INFINITY
        classes[values == -np.inf] = MINUS_INFINITY
    if np.isfinite(largest):
        classes[finite & (np.abs(values) > largest)] = NOT_PROMISED
    return classes


def parts(size: int) -> Iterator[slice]:
    """Parts of a vector that stay in the cache."""
    return (slice(at, min(at + MAX_BOX_POINTS, size)) for at in range(0, size, MAX_BOX_POINTS))


def over_parts(work: Callable[[slice], T], size: int) -> list[T]:
    """`work` of each part of a vector of `size` elements, on several threads where it is long."""
    boxes = [Box(("n",), (p.start,), (p.stop - p.start,)) for p in parts(size)]
    return over_boxes(lambda box: work(box.slices[0]), boxes, apart=True)
