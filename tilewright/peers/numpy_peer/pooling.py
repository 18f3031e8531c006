"""Pooling in NumPy as an experienced user writes it: one step per tap, over the whole image."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.algebra.scalar import Const, Load, Select, walk
from tilewright.schedules.reference.math import combiner
from tilewright.schedules.workload.tensors import Stage

from ..forms.convolution import permuted
from ..forms.pool import PoolForm
from ..variants import Call
from .padding import at, framed

Array = NDArray[Any]


def pool_by_taps(form: PoolForm, stage: Stage, tensors: Mapping[str, Array], out: Array) -> Call:
    """Return a call that writes the pooling of one of `tensors` to `out`. Outside the tensor,
    elements have the constant of the expression."""
    if not isinstance(stage.body, Load | Select):
        raise ValueError("the elements are changed before they are reduced")
    outside = [n.on_false.value for n in walk(stage.body) if isinstance(n, Select)
               and isinstance(n.on_false, Const)]  # fmt: skip
    data, rank = tensors[form.data], len(form.taps)
    fill, padded = framed(
        lambda: permuted(data, form.order), form.spans, outside[0] if outside else 0
    )
    result = out.transpose(np.argsort(form.back))
    ufunc = combiner(form.reducer.op, out.dtype)
    windows = list(zip(form.axes[-rank:], form.stride, form.dilation, strict=True))
    taps = [
        at(padded, [
            slice(d * t, d * t + (n - 1) * s + 1, s)
            for t, (n, s, d) in zip(tap, windows, strict=True)
        ])
        for tap in product(*map(range, form.taps))
    ]  # fmt: skip

    def call() -> None:
        fill()
        np.copyto(result, taps[0])
        for each in taps[1:]:
            ufunc(result, each, out=result)

    return call
