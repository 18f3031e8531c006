"""Winograd: a windowed sum of products with fewer products and a larger error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import expm1, log1p, prod

from ..algebra.affine import Affine, Interval, affine, interval, modulo, var
from ..algebra.conditions import needed, within
from ..algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Const,
    Load,
    Reducer,
    Scalar,
    Select,
    substitute,
)
from ..errors import ScheduleError
from ..limits import MAX_DIMS, MAX_STAGES
from ..workload.tensors import Axis, Elementwise, Reduction, Stage, Tensor
from ..workload.workload import Workload
from .cook_toom import FastFilter, Matrix, fast_filter, has_filter
from .linear import chosen_row, roundings
from .rewrite import Rewrite
from .windows import WindowAccess, WindowedSum, find_windows


@dataclass(frozen=True, slots=True)
class Winograd(Rewrite):
    """Compute `stage`, a convolution, from tiles of its output.

    The transforms of the weight (U), of the data (V) and of the result (A) have one stage per tiled
    dimension:

        U[k.., weight's dims]            = G weight
        V[k.., data's dims, tiled]       = B data              zero outside
        M[k.., output's dims, tiled]     = sum of V * U        over axes that are not taps
        stage                            = A M

    The rewrite is legal if (1) the stage is a sum of products in f32 or f64 over windows with steps
    of one, (2) a reduction axis remains in addition to the taps, (3) an operand is an input of the
    workload, (4) `cook_toom.POINTS` has points for the windows, and (5) the workload allows
    `stated_error`.
    """

    tiles: tuple[tuple[int, int], ...]
    """Pairs (dimension, outputs per tile) in the order of dimensions. ((1, 4), (2, 4)) is F(4x4,
    3x3) if the windows are 3x3."""

    @property
    def label(self) -> str:
        return "winograd" + "x".join(str(size) for _, size in self.tiles)

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with the stage rewritten, in normal form.

        Raise ScheduleError if a condition of the class docstring fails, or if there would be too
        many stages or dimensions.
        """
        plan = self._plan(workload)
        stated = plan.stated_error
        allowed = workload.allowed_error
        if allowed is None or stated > allowed:
            given = "no error" if allowed is None else f"an error of {allowed:g}"
            raise ScheduleError(
                self, f"its error may be {stated:.2g}, and the workload allows {given}"
            )
        stages = [s for old in workload.stages for s in plan.written(old)]
        if len(stages) > MAX_STAGES:
            raise ScheduleError(self, f"it makes {len(stages)} stages, {MAX_STAGES} are allowed")
        return replace(workload, stages=tuple(stages)).normalised()

    def stated_error(self, workload: Workload) -> float:
        """Return the proven bound on the error of an element of the stage.

        The error is relative to max|data| times the largest sum of |weight| over one element;
        docs/math.md derives it. Raise ScheduleError as `rewrite` does.
        """
        return self._plan(workload).stated_error

    def _plan(self, workload: Workload) -> _Plan:
        stage = self.stage_of(workload)
        found = find_windows(stage, workload.tensors)
        if isinstance(found, str):
            raise ScheduleError(self, found)
        inputs = {tensor.name for tensor in workload.inputs}
        if inputs.isdisjoint((found.data.tensor, found.weight.tensor)):
            # `stated_error` does not include the errors of rewrites that computed both operands.
            raise ScheduleError(self, "no operand is an input: errors of operands would be added")
        windows = {w.dim: w for w in found.windows}
        tiled: list[_Tiled] = []
        if not self.tiles or list(self.tiles) != sorted(dict(self.tiles).items()):
            raise ScheduleError(self, "tiles are pairs of a dimension and a size, in order")
        for dim, outputs in self.tiles:
            if dim not in windows:
                raise ScheduleError(
                    self, f"windows slide along dimensions {sorted(windows)}, not {dim}"
                )
            taps = windows[dim].tap.extent
            if not has_filter(outputs, taps):
                raise ScheduleError(self, f"there is no F({outputs},{taps})")
            tiled.append(_Tiled(windows[dim], outputs, fast_filter(outputs, taps)))
        gone = {t.window.tap.name for t in tiled}
        if all(a.name in gone for a in stage.reduce_axes):
            raise ScheduleError(self, "nothing would be left to sum: there is no axis but the taps")
        if len(tiled) + max(len(stage.axes), len(found.data.index)) > MAX_DIMS:
            raise ScheduleError(self, f"a tensor would have more than {MAX_DIMS} dimensions")
        return _Plan(found, tuple(tiled))


@dataclass(frozen=True, slots=True)
class _Tiled:
    """A window and the filter that computes it."""

    window: WindowAccess
    outputs: int
    filter: FastFilter

    @property
    def tiles(self) -> int:
        return -(-self.window.walk.extent // self.outputs)

    @property
    def products(self) -> int:
        return self.filter.products


@dataclass(frozen=True, slots=True)
class _Plan:
    """Builds the stages that replace the windowed sum.

    Axis `k{n}` numbers the products along tiled dimension n, and `o{n}` the outputs of a tile.
    `x{n}` numbers the elements or taps that a transform along this dimension reads. `q{d}` is
    dimension d of an operand.
    """

    sum: WindowedSum
    tiled: tuple[_Tiled, ...]

    @property
    def stage(self) -> Stage:
        return self.sum.stage

    @property
    def stated_error(self) -> float:
        """The bound amplification * ((1 + u)**n - 1), for at most n roundings of a term."""
        taps = {t.window.tap.name for t in self.tiled}
        terms = prod(a.extent for a in self.stage.reduce_axes if a.name not in taps)
        count = terms + 2
        # Start-up: queries that only read a trace then do not import NumPy.
        from ..reference.error_rounding import unit_roundoff

        amplification = Fraction(1)
        for t in self.tiled:
            amplification *= t.filter.amplification
            count += sum(map(roundings, (t.filter.outputs, t.filter.taps, t.filter.inputs)))
        unit = unit_roundoff(self.stage.tensor.dtype) + 2.0**-52
        return float(amplification) * expm1(count * log1p(unit))

    def written(self, old: Stage) -> list[Stage]:
        """Return the stages that replace the stage `old`."""
        if old is not self.stage:
            return [old]
        data = self._data_stages()
        weight = self._weight_stages()
        product = self._product(data[-1].tensor, weight[-1].tensor)
        return [*data, *weight, product, *self._output_stages(product)]

    # -- V = B data

    def _data_stages(self) -> list[Stage]:
        """Return the transforms of the data. The first stage reads the data, padded with zeros."""
        read, low = self._whole_read(self.sum.data)
        dims = [Axis(f"q{d}", i.hi - i.lo + 1) for d, i in enumerate(read)]
        for t in self.tiled:
            dims[t.window.data_dim] = replace(dims[t.window.data_dim], extent=t.tiles)
        index: list[Affine] = [var(a.name) + at for a, at in zip(dims, low, strict=True)]
        for n, t in enumerate(self.tiled):
            d = t.window.data_dim
            index[d] = var(f"q{d}") * t.outputs + var(f"x{n}") + t.window.offset
        sizes = [t.products for t in self.tiled]
        first = self._padded(self.sum.data, index, [*self._places("x", sizes), *dims])
        return self._transformed(
            "v", first, sizes, sizes, dims, [t.filter.inputs for t in self.tiled]
        )

    def _whole_read(self, load: Load) -> tuple[list[Interval], list[int]]:
        ranges = self.sum.ranges
        read = [interval(i, ranges) for i in load.index]
        return read, [i.lo for i in read]

    def _padded(self, load: Load, index: list[Affine], axes: list[Axis]) -> Scalar:
        ranges = {a.name: Interval(0, a.extent - 1) for a in axes}
        shape = self.sum.data_shape
        inside = [c for i, extent in zip(index, shape, strict=True) for c in within(i, extent)]
        kept = needed(inside, ranges)
        read = replace(load, index=tuple(index))
        if kept == ():
            return read
        # `kept` is None if no read is in bounds: the original sum reads only padding.
        return Select(All(tuple(inside) if kept is None else kept), read, Const(0, load.dtype))

    # -- U = G weight

    def _weight_stages(self) -> list[Stage]:
        load = self.sum.weight
        read, low = self._whole_read(load)
        gone = {t.window.weight_dim for t in self.tiled}
        dims = [Axis(f"q{d}", i.hi - i.lo + 1) for d, i in enumerate(read) if d not in gone]
        index: list[Affine] = [var(f"q{d}") + at for d, at in enumerate(low)]
        for n, t in enumerate(self.tiled):
            index[t.window.weight_dim] = var(f"x{n}") + t.window.weight_offset
        first = replace(load, index=tuple(index))
        return self._transformed(
            "u",
            first,
            [t.window.tap.extent for t in self.tiled],
            [t.products for t in self.tiled],
            dims,
            [t.filter.taps for t in self.tiled],
        )

    def _transformed(
        self,
        letter: str,
        first: Scalar,
        before: list[int],
        after: list[int],
        dims: list[Axis],
        matrices: list[Matrix],
    ) -> list[Stage]:
        """Return one stage per matrix. Stage n replaces axis `x{n}` of `first`, of extent
        `before[n]`, by `k{n}`, of extent `after[n]`."""
        stages: list[Stage] = []
        source: Scalar = first
        for n, matrix in enumerate(matrices):
            places = [
                *self._places("k", after[: n + 1]),
                *self._places("x", before, start=n + 1),
            ]

            def term(i: int, source: Scalar = source, n: int = n) -> Scalar:
                return substitute(source, {f"x{n}": affine(i)})

            groups = (range(0, before[n], 2), range(1, before[n], 2))
            body = chosen_row(matrix, var(f"k{n}"), term, groups, self.stage.tensor.dtype)
            stages.append(self._stage(f"{letter}{n}", [*places, *dims], body))
            source = self._whole(stages[-1])
        return stages

    # -- M = V * U

    def _product(self, data: Tensor, weight: Tensor) -> Stage:
        stage, tiled = self.stage, {t.window.data_dim: t for t in self.tiled}
        ks = self._places("k", [t.products for t in self.tiled])
        numbers = [var(a.name) for a in ks]
        _, low = self._whole_read(self.sum.data)
        of_data = [
            var(tiled[d].window.walk.name) if d in tiled else i - low[d]
            for d, i in enumerate(self.sum.data.index)
        ]
        gone = {t.window.weight_dim for t in self.tiled}
        _, low = self._whole_read(self.sum.weight)
        of_weight = [i - low[d] for d, i in enumerate(self.sum.weight.index) if d not in gone]
        dtype = stage.tensor.dtype
        body = Binary(
            BinaryOp.MUL,
            Load(data.name, (*numbers, *of_data), dtype),
            Load(weight.name, (*numbers, *of_weight), dtype),
        )
        taps = {t.window.tap.name for t in self.tiled}
        left = tuple(a for a in stage.reduce_axes if a.name not in taps)
        made = self._stage("m", [*ks, *self._tiled_axes()], body)
        return replace(made, kind=Reduction(Reducer.SUM, left))

    def _tiled_axes(self) -> list[Axis]:
        """Return the axes of the stage. The extent of a tiled axis is its number of tiles."""
        counts = {t.window.walk.name: t.tiles for t in self.tiled}
        return [replace(a, extent=counts.get(a.name, a.extent)) for a in self.stage.axes]

    # -- stage = A M

    def _output_stages(self, product: Stage) -> list[Stage]:
        """Return one stage per tiled dimension; the last one has the axes of the original stage."""
        dtype = self.stage.tensor.dtype
        stages: list[Stage] = []
        source: Stage = product
        last = len(self.tiled) - 1
        sizes = [t.outputs for t in self.tiled]
        ks = self._places("k", [t.products for t in self.tiled])
        for n, t in enumerate(self.tiled):
            done = self._places("o", sizes[: n + 1])
            index: dict[str, Affine] = {a.name: var(a.name) for a in (*done, *ks)}
            chooser = index[f"o{n}"]
            axes = [*done, *ks[n + 1 :], *self._tiled_axes()]
            if n == last:
                axes, index = list(self.stage.axes), self._of_element()
                chooser = index[f"o{n}"]

            def term(i: int, source: Stage = source, at: dict[str, Affine] = index,
                     n: int = n) -> Scalar:  # fmt: skip
                moved = at | {f"k{n}": affine(i)}
                names = [a.name for a in source.axes]
                return Load(source.name, tuple(moved.get(x, var(x)) for x in names), dtype)

            pairs = [[0], *([k, k + 1] for k in range(1, t.products - 1, 2)), [t.products - 1]]
            body = chosen_row(t.filter.outputs, chooser, term, pairs, dtype)
            if n == last:
                stages.append(replace(self.stage, body=body, kind=Elementwise()))
            else:
                stages.append(self._stage(f"y{n}", axes, body))
                source = stages[-1]
        return stages

    def _of_element(self) -> dict[str, Affine]:
        """Return the indices of an output element in the transformed tensors: its tile by axis
        name, and its position in the tile as `o{n}`."""
        found: dict[str, Affine] = {}
        for n, t in enumerate(self.tiled):
            name = t.window.walk.name
            found[name] = var(name) // t.outputs
            found[f"o{n}"] = modulo(var(name), t.outputs)
        return found

    # -- names

    def _places(self, letter: str, sizes: list[int], start: int = 0) -> list[Axis]:
        return [Axis(f"{letter}{n}", size) for n, size in enumerate(sizes) if n >= start]

    def _stage(self, letter: str, axes: list[Axis], body: Scalar) -> Stage:
        shape = tuple(a.extent for a in axes)
        tensor = Tensor(f"{self.stage.name}_{letter}", shape, self.stage.tensor.dtype)
        return Stage(tensor, tuple(axes), body)

    def _whole(self, stage: Stage) -> Load:
        index = tuple(var(a.name) for a in stage.axes)
        return Load(stage.name, index, stage.tensor.dtype)
