"""Random computations: free ones, and those of the structures that schedules look for.

A stage that is drawn freely seldom reads a tensor by all its axes in another order, or a window of
one: a structure of a pattern, with types, indices and arithmetic that are as random as anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from math import prod

from .computation import (
    NARROW,
    And,
    Bin,
    Cast,
    Computation,
    Ix,
    IxAdd,
    IxConst,
    IxMul,
    IxSub,
    IxTest,
    IxValue,
    IxVar,
    Num,
    Or,
    Read,
    Stage,
    Tensor,
    Test,
    Un,
    Value,
    ValueTest,
    Where,
    ix_range,
    names_in,
    wide,
)
from .drawing import (
    DTYPES,
    EXTENTS,
    REDUCED_POINTS,
    RELATIONS,
    SPATIAL_POINTS,
    Drawing,
)

_LONGER = (1, 2, 3, 4, 5, 7, 8, 9, 16)
"""Extents of several axes, of which some are to be long enough for vectors."""


def random_computation(rng: random.Random) -> Computation:
    """A computation that all front ends can say; `rng` fixes it."""
    return _Patterns(rng).computation()


class _Patterns(Drawing):
    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._own_read: Callable[[str], Read] | None = None
        """How a stage of a pattern reads, most of the time."""

    def _draw(self) -> None:
        kind = self._rng.random()
        if kind < 0.45:
            super()._draw()
        elif kind < 0.65:
            self._permuted()
        elif kind < 0.72:
            self._grouped()
        elif kind < 0.82:
            self._window()
        elif kind < 0.93:
            self._of_rows()
        else:
            self._converted()

    def _read(self, dtype: str) -> Read:
        if self._own_read is not None and self._rng.random() < 0.9:
            return self._own_read(dtype)
        return super()._read(dtype)

    @property
    def _tensors(self) -> list[Stage | Tensor]:
        return [*self._stages, *self._inputs]

    def _add(self, dtype: str, body: Value, reducer: str = "") -> Stage:
        axes = tuple((n, self._extents[n]) for n in self._spatial)
        reduced = tuple((n, self._extents[n]) for n in self._reduced)
        stage = Stage(f"T{len(self._stages)}", dtype, axes, body, reducer, reduced)
        self._stages.append(stage)
        return stage

    def _walked(self, extents: list[int], most: int, prefix: str = "x") -> list[str]:
        """New axes of these extents, in order, as far as there are points for them."""
        names, total = [], 1
        for n, extent in enumerate(extents):
            name = f"{prefix}{len(self._stages)}{'abcdefgh'[n]}"
            self._extents[name] = extent if total * extent <= most else 1
            total *= self._extents[name]
            names.append(name)
        return names

    # Transpositions -------------------------------------------------------------------------

    def _permuted(self) -> None:
        """An elementwise stage that reads tensors by its axes in other orders, or by some of them:
        layouts of images, broadcasts, attention by heads."""
        rng = self._rng
        known = [s.shape for s in self._tensors if 1 < len(s.shape) < 6]
        if known and rng.random() < 0.6:
            extents = list(rng.choice(known))
            rng.shuffle(extents)
        else:
            extents = rng.choices(_LONGER, k=rng.choice((2, 3, 4, 4, 4, 5)))
        self._spatial, self._reduced = self._walked(extents, SPATIAL_POINTS), []
        self._own_read = self._reordered
        dtype = rng.choice(DTYPES)
        body = self._value(dtype, rng.choice((0, 1, 1, 2, 3)))
        read = self._reordered(dtype)
        self._add(dtype, body if rng.random() < 0.3 else self._joined(dtype, body, read))
        self._own_read = None

    def _reordered(self, dtype: str) -> Read:
        """A tensor of which each axis of the stage, or of some, is one dimension, in any order."""
        rng = self._rng
        tensors = [t for t in self._tensors if t.dtype == dtype]
        rng.shuffle(tensors)
        for tensor in tensors if rng.random() < 0.7 else ():
            order = self._names_for(tensor.shape)
            if order is not None:
                return Read(tensor.name, tuple(map(IxVar, order)), dtype, rng.random() < 0.5)
        names = [n for n in self._spatial if rng.random() < 0.9] or self._spatial[:1]
        rng.shuffle(names)
        return self._plain_read(dtype, names)

    def _names_for(self, shape: tuple[int, ...]) -> list[str] | None:
        """Different axes with the extents of a shape."""
        left = list(self._names)
        self._rng.shuffle(left)
        found = []
        for extent in shape:
            name = next((n for n in left if self._extents[n] == extent), None)
            if name is None:
                return None
            left.remove(name)
            found.append(name)
        return found

    # Axes that lie together -------------------------------------------------------------------

    def _grouped(self) -> None:
        """A stage whose axes lie together in groups, in every tensor, where a condition may compare
        axes of one group or of two: a form with merged axes keeps the condition, or is refused."""
        rng = self._rng
        shapes = [rng.choices((1, 2, 2, 3, 4, 5), k=rng.choice((1, 2, 2, 3))) for _ in range(2)]
        count = 2 if max(map(len, shapes)) > 2 else rng.choice((2, 2, 3))
        extents = [shapes[0], *(rng.choice(shapes) for _ in range(count - 1))]
        reduced = rng.choice((0, 0, 1)) if count > 1 else 0
        kept = [e for shape in extents[: count - reduced] for e in shape]
        names = self._walked(kept, SPATIAL_POINTS)
        self._spatial = list(names)
        space = prod(self._extents[n] for n in names)
        over = extents[-1] if reduced else []
        self._reduced = self._walked(over, max(REDUCED_POINTS // space, 1), "k")
        left, groups = [*names, *self._reduced], []
        for shape in extents:
            groups.append(left[: len(shape)])
            left = left[len(shape) :]

        def read(dtype: str) -> Read:
            """A tensor of some groups, or the one there is of their extents."""
            chosen = rng.sample(groups, rng.choice((1, 1, 2)))
            axes = [n for group in chosen for n in group]
            shape = tuple(self._extents[n] for n in axes)
            same = [t.name for t in self._tensors if (t.dtype, t.shape) == (dtype, shape)]
            if same and rng.random() < 0.8:
                return Read(rng.choice(same), tuple(map(IxVar, axes)), dtype)
            return self._plain_read(dtype, axes)

        self._own_read = read
        dtype = wide(rng.choice(DTYPES))
        body: Value = self._joined(dtype, read(dtype), read(dtype))
        if rng.random() < 0.8:
            a, b = (rng.choice(groups) for _ in range(2))
            places = (
                [(rng.choice(a), rng.choice(b))]
                if rng.random() < 0.5
                else list(zip(a, b, strict=False))
            )
            tests: list[Test] = [
                IxTest(rng.choice(RELATIONS), IxVar(x), IxVar(y))
                if rng.random() < 0.8
                else IxTest(rng.choice(RELATIONS), self._place_in(a), self._place_in(b))
                for x, y in places
            ]
            cond = reduce(rng.choice((And, Or)), tests)
            body = Where(cond, body, self._number(dtype), dtype)
        reducer = rng.choice(("sum", "sum", "max", "min")) if self._reduced else ""
        self._add(dtype, self._missing(dtype, body) if self._reduced else body, reducer)
        self._own_read = None

    def _place_in(self, group: list[str]) -> Ix:
        """The position of the elements of a group in its tensor, row by row."""
        place: Ix = IxVar(group[0])
        for name in group[1:]:
            place = IxAdd(IxMul(self._extents[name], place), IxVar(name))
        return place

    # Windows --------------------------------------------------------------------------------

    def _window(self) -> None:
        """A sum of products over taps and channels, or an extreme over taps, in any layout: what
        is read around the edges is zero, or is not read."""
        rng = self._rng
        images = rng.choice((1, 2, 2))
        others = rng.choice((0, 1, 2))
        spatial = rng.choices((2, 3, 4, 5, 7, 9), k=images) + rng.choices(
            (1, 2, 3, 8, 17), k=others
        )
        self._spatial = self._walked(spatial, 200)
        points = prod(self._extents[n] for n in self._spatial)
        taps = rng.choices((1, 2, 3, 3, 5), k=images)
        is_product = rng.random() < 0.6
        channels = [rng.choice((1, 2, 4, 9))] if is_product else []
        self._reduced = self._walked(taps + channels, max(2400 // points, 1), "k")
        dtype = rng.choice(DTYPES)
        walked, beside = self._spatial[:images], self._spatial[images:]
        index = [self._tap(x, k) for x, k in zip(walked, self._reduced, strict=False)]
        index += [
            IxVar(n)
            for n in (*self._reduced[images:], *beside)
            if n in self._reduced or rng.random() < 0.5
        ]
        rng.shuffle(index)
        rng.shuffle(self._spatial)
        image: Value = self._image(dtype, tuple(index))
        if not is_product:
            kept = wide(dtype) if dtype in NARROW else dtype
            image = image if kept == dtype else Cast(image, kept)
            self._add(kept, self._missing(kept, image), rng.choice(("max", "min")))
        else:
            names = [*self._reduced, *(n for n in beside if rng.random() < 0.8)]
            rng.shuffle(names)
            weight: Value = self._plain_read(dtype, names)
            both = wide(dtype)
            pair = [x if both == dtype else Cast(x, both) for x in (image, weight)]
            rng.shuffle(pair)
            self._add(both, self._missing(both, Bin("mul", pair[0], pair[1], both)), "sum")
        if rng.random() < 0.5:
            self._permuted()

    def _missing(self, dtype: str, body: Value) -> Value:
        """`body` with something that depends on reduction axes it does not use."""
        missing = [k for k in self._reduced if k not in names_in(body)]
        return self._joined(dtype, body, self._plain_read(dtype, missing)) if missing else body

    def _tap(self, axis: str, tap: str) -> Ix:
        rng = self._rng
        at: Ix = IxVar(axis)
        stride, step = rng.choice((1, 1, 1, 2, 3)), rng.choice((1, 1, 1, 2, -1))
        at = at if stride == 1 else IxMul(stride, at)
        at = IxAdd(at, IxVar(tap) if step == 1 else IxMul(step, IxVar(tap)))
        pad = rng.choice((0, 0, 1, 2))
        return IxSub(at, IxConst(pad)) if pad else at

    def _image(self, dtype: str, index: tuple[Ix, ...]) -> Read:
        """A tensor there is, of so many dimensions, or a new one that the index fits, or nearly."""
        rng = self._rng
        fitting = [t for t in self._tensors
                   if t.dtype == dtype and len(t.shape) == len(index)]  # fmt: skip
        if fitting and rng.random() < 0.5:
            return Read(rng.choice(fitting).name, index, dtype)
        shape = tuple(max(1, min(ix_range(i, self._extents)[1] + rng.choice((1, 1, 0, -1)), 40))
                      for i in index)  # fmt: skip
        return Read(self._input(dtype, shape), index, dtype)

    # Rows -----------------------------------------------------------------------------------

    def _of_rows(self) -> None:
        """Reductions of one tensor over some of its axes, of what is computed from them, and where
        an extreme is found: norms, softmax, argmax, losses."""
        rng = self._rng
        shape = rng.choices((2, 3, 4, 5, 7, 8, 13, 17), k=rng.choice((2, 2, 3, 4)))
        total = 1
        shape = [e if (total := total * e) <= SPATIAL_POINTS else 1 for e in shape]
        dtype = rng.choice(("f32", "f32", "f64", "i32", "i64", "f16", "bf16", "i8", "u8"))
        source = self._input(dtype, tuple(shape))
        held = wide(dtype)
        over = sorted(rng.sample(range(len(shape)), rng.randint(1, len(shape) - 1)))
        kept = [d for d in range(len(shape)) if d not in over]
        rng.shuffle(kept)

        def element(names: dict[int, str], tensor: str, of: str) -> Value:
            read = Read(tensor, tuple(IxVar(names[d]) for d in range(len(shape))), of)
            return read if of == held else Cast(read, held)

        found = self._over(source, dtype, held, shape, kept, over, element)
        if rng.random() < 0.5:
            found = self._where_found(source, dtype, held, shape, kept, over, element, found)
            if rng.random() < 0.5:
                return
        order = list(range(len(shape)))
        rng.shuffle(order)
        names = self._axes_of(shape, order, [])
        one, all_of = element(names, source, dtype), self._row(found, names, kept, held)
        ops = (
            ("add", "sub", "mul", "max", "div") if held[0] == "f" else ("add", "sub", "mul", "max")
        )
        body: Value = Bin(rng.choice(ops), one, all_of, held)
        if held[0] == "f" and rng.random() < 0.5:
            body = Un(rng.choice(("exp", "tanh", "abs", "sigmoid")), body, held)
        scaled = self._add(held, body)
        if rng.random() < 0.7:
            where = {d: n for n, d in enumerate(order)}
            again = [where[d] for d in over], [where[d] for d in kept]

            def scaled_at(places: dict[int, str], tensor: str, of: str) -> Value:
                return Read(tensor, tuple(IxVar(places[n]) for n in range(len(order))), of)

            turned = [shape[d] for d in order]
            total_of = self._over(scaled.name, held, held, turned, again[1], again[0], scaled_at)
            names = self._axes_of(turned, rng.sample(range(len(order)), len(order)), [])
            row = self._row(total_of, names, again[1], held)
            self._add(held, Bin(rng.choice(ops), scaled_at(names, scaled.name, held), row, held))

    def _axes_of(self, shape: list[int], kept: list[int], over: list[int]) -> dict[int, str]:
        """New axes for dimensions, those of the stage in the order of `kept`."""
        self._spatial = self._walked([shape[d] for d in kept], SPATIAL_POINTS * 4)
        self._reduced = self._walked([shape[d] for d in over], SPATIAL_POINTS * 4, "k")
        return dict(zip((*kept, *over), self._names, strict=True))

    def _over(
        self,
        source: str,
        dtype: str,
        held: str,
        shape: list[int],
        kept: list[int],
        over: list[int],
        element: Callable[[dict[int, str], str, str], Value],
    ) -> Stage:
        names = self._axes_of(shape, kept, over)
        value = element(names, source, dtype)
        if held[0] == "f" and self._rng.random() < 0.3:
            value = Bin("mul", value, value, held)
        return self._add(held, value, self._rng.choice(("sum", "max", "max", "min")))

    def _row(self, stage: Stage, names: dict[int, str], kept: list[int], held: str) -> Value:
        return Read(stage.name, tuple(IxVar(names[d]) for d in kept), held)

    def _where_found(
        self,
        source: str,
        dtype: str,
        held: str,
        shape: list[int],
        kept: list[int],
        over: list[int],
        element: Callable[[dict[int, str], str, str], Value],
        extreme: Stage,
    ) -> Stage:
        """The first place, the last one, or the number, of elements that compare so with an extreme
        of their row."""
        rng = self._rng
        names = self._axes_of(shape, kept, over)
        test = ValueTest(rng.choice(("==", "==", "==", ">=", "<")), element(names, source, dtype),
                         self._row(extreme, names, kept, held))  # fmt: skip
        reducer = rng.choice(("min", "max", "sum"))
        far = {"min": 100000, "max": -1, "sum": 0}[reducer]
        index: Ix = IxVar(names[over[-1]])
        for d in over[:-1]:
            index = IxAdd(index, IxMul(shape[over[-1]], IxVar(names[d])))
        kind = rng.choice(("i32", "i32", "i64", "f32"))
        number: int | float = float(far) if kind == "f32" else far
        self._add(kind, Where(test, IxValue(index, kind), Num(number, kind), kind), reducer)
        return extreme

    # Conversions ----------------------------------------------------------------------------

    def _converted(self) -> None:
        """Values through several types, beyond what these can hold."""
        rng = self._rng
        self._spatial = self._walked(
            rng.choices(EXTENTS[2:], k=rng.choice((1, 2, 3))), SPATIAL_POINTS
        )
        self._reduced = []
        types = [rng.choice(DTYPES) for _ in range(rng.choice((2, 3, 4)))]
        value: Value = self._plain_read(types[0], rng.sample(self._spatial, len(self._spatial)))
        for before, after in pairwise(types):
            if wide(before) == before and rng.random() < 0.7:
                factor = self._number(before)
                value = Bin(rng.choice(("add", "sub", "mul", "min", "max")), value, factor, before)
            value = Cast(value, after) if after != before else value
        self._add(types[-1], value)
