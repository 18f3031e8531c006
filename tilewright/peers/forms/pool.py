"""Recognises pooling, a reduction over windows, by its indices."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.schedules.algebra.scalar import Reducer, loads
from tilewright.schedules.workload.tensors import Reduction, Stage

from .convolution import SlidingWindow, permuted, reshaped, window_of


@dataclass(frozen=True, slots=True)
class PoolForm:
    """A reduction over windows of one tensor."""

    data: str
    reducer: Reducer
    order: tuple[int, ...]
    """Permutes the data to (others..., spatial...)."""
    taps: tuple[int, ...]
    """The size of the window along each spatial axis."""
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    """The least and greatest coordinate that is read along each spatial axis."""
    axes: tuple[int, ...]
    """The extents of the output: (others..., spatial...)."""
    back: tuple[int, ...]
    """Permutes `axes` to the stage's axes."""

    def image(self, data: Any) -> Any:
        """Return `data` as [N, C, spatial...]."""
        turned = permuted(data, self.order)
        rank = len(self.taps)
        first, *rest = (1, 1, *turned.shape[:-rank])[-max(2, turned.ndim - rank) :]
        return reshaped(turned, (first, prod(rest), *turned.shape[turned.ndim - rank :]))

    def unfolded(self, result: Any) -> Any:
        rank = len(self.taps)
        cut = result[(..., *(slice(0, n) for n in self.axes[-rank:]))]
        return permuted(reshaped(cut, self.axes), self.back)


def pool_form(stage: Stage) -> PoolForm | None:
    """Match `stage` as a reduction over windows of one tensor, or return None. The caller must
    compare the results, because the operations on the elements are not examined."""
    found = loads(stage.body)
    if not isinstance(stage.kind, Reduction) or len(found) != 1:
        return None
    reducer = stage.kind.reducer
    if reducer not in (Reducer.MAX, Reducer.MIN, Reducer.SUM):
        return None
    (load,) = found
    spatial, summed = [a.name for a in stage.axes], [a.name for a in stage.reduce_axes]
    extent = {a.name: a.extent for a in stage.all_axes}
    plain: dict[str, int] = {}
    windows: list[SlidingWindow] = []
    for dim, index in enumerate(load.index):
        window = window_of(dim, index, spatial, summed)
        if window is None or window.dilation < 1:
            return None
        if window.w is None and window.stride == 1 and not window.offset:
            plain[window.x] = dim
        else:
            windows.append(window)
    names = [*plain, *(w.x for w in windows)]
    if sorted(names) != sorted(spatial) or not 1 <= len(windows) <= 3:
        return None
    if sorted(w.w for w in windows if w.w is not None) != sorted(summed):
        return None
    taps = tuple(1 if w.w is None else extent[w.w] for w in windows)
    return PoolForm(
        data=load.tensor,
        reducer=reducer,
        order=(*plain.values(), *(w.dim for w in windows)),
        taps=taps,
        stride=tuple(w.stride for w in windows),
        dilation=tuple(w.dilation for w in windows),
        spans=tuple(
            (w.offset, w.offset + w.stride * (extent[w.x] - 1) + w.dilation * (k - 1))
            for w, k in zip(windows, taps, strict=True)
        ),
        axes=tuple(extent[n] for n in names),
        back=tuple(names.index(n) for n in spatial),
    )
