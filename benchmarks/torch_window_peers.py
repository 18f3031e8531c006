"""How a practised user asks PyTorch (CPU) for convolutions and pooling.

Tensors are channels last, weights converted beforehand. There is no `out=`: results come from
PyTorch's allocator, which `suite/crew.py` makes keep its memory, so no call pays for new pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as nnf
from torch import Tensor

from benchmarks.peer_types import Sizes
from benchmarks.windows import Windows
from tuner.bench.torch_convolutions import Convolution, convolution_ways
from tuner.bench.torch_products import ACTIVATIONS, Epilogue, product_ways
from tuner.bench.ways import Way

Call = Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class Request:
    """Inputs, where the result may go, sizes of the case, and what follows (`bias`, `relu`, ...).

    `constant`: the weights never change, and may lie as the library wants them.
    """

    x: Sequence[Tensor]
    y: Tensor
    sizes: Sizes
    steps: tuple[str, ...] = ()
    constant: bool = False


def epilogue_of(steps: Sequence[str], rest: Sequence[Tensor]) -> Epilogue:
    """`bias`, `add` and a function, in this order; `rest` are the tensors that are added.

    ValueError for another order, or a function PyTorch has no name for here.
    """
    names, tensors = list(steps), list(rest)
    bias = tensors.pop(0) if names[:1] == ["bias"] and names.pop(0) else None
    added = tensors.pop(0) if names[:1] == ["add"] and names.pop(0) else None
    activation = names.pop(0) if names else ""
    if names or tensors or (activation and activation not in ACTIVATIONS):
        raise ValueError(f"no PyTorch spelling of the epilogue {'+'.join(steps)!r}")
    return Epilogue(bias, added, activation)


def convolution(r: Request) -> list[Way]:
    """X[N,*axes,CI] with W[*taps,CI/groups,CO], one axis to three."""
    data, weight, *rest = r.x
    windows = Windows.of(r.sizes, data.ndim - 2)
    groups = r.sizes.get("groups", 1)
    ways = _library_ways(data, weight, windows, groups, r, rest)
    if data.ndim == 3:  # as an image of one line, which has a channels-last form
        lifted = Windows(*((one, *each) for one, each in _with_ones(windows)))
        lines = _library_ways(
            data.unsqueeze(1), weight.unsqueeze(0), lifted, groups, r,
            [t.unsqueeze(1) if t.ndim == 3 else t for t in rest],
        )  # fmt: skip
        ways += [_then(line, lambda y: y.squeeze(1), "as an image, ") for line in lines]
    if windows.pointwise and groups == 1:
        ways += _products(data, weight, r, rest)
    return ways


def _with_ones(windows: Windows) -> list[tuple[int, tuple[int, ...]]]:
    return [(1, windows.taps), (1, windows.stride), (0, windows.pad), (1, windows.dilation)]


def _then(way: Way, change: Callable[[Tensor], Tensor], said: str = "") -> Way:
    """`way`, with its result as `change` gives it."""

    def prepare() -> Call:
        call = way.prepare()
        return lambda: change(call())

    return Way(f"{said}{way.name}", prepare)


def _library_ways(
    data: Tensor, weight: Tensor, windows: Windows, groups: int, r: Request,
    rest: Sequence[Tensor],
) -> list[Way]:  # fmt: skip
    """The library's convolution; results are channels last again."""
    kernel = weight.permute(-1, -2, *range(weight.ndim - 2))
    how = Convolution(windows.stride, windows.pad, windows.dilation, groups)
    return _image_ways(data, kernel, how, r, rest)


def _image_ways(
    data: Tensor, kernel: Tensor, how: Convolution, r: Request, rest: Sequence[Tensor]
) -> list[Way]:
    epilogue = epilogue_of(r.steps, [_channels_second(t) for t in rest])
    found = convolution_ways(_channels_second(data), kernel, how, epilogue, constant=r.constant)
    return [_then(each, _channels_last) for each in found]


def _products(data: Tensor, weight: Tensor, r: Request, rest: Sequence[Tensor]) -> list[Way]:
    """A pointwise convolution as the matrix product it is."""
    flat, matrix = data.reshape(-1, data.shape[-1]), weight.reshape(-1, weight.shape[-1])
    out = r.y.view(-1, r.y.shape[-1])
    epilogue = epilogue_of(r.steps, [t.reshape(out.shape) if t.ndim > 1 else t for t in rest])
    return product_ways(flat, matrix, out, epilogue, constant=r.constant)


def conv_bn_relu(r: Request) -> list[Way]:
    """Scale and offset are inputs, so they are not folded into the weights."""
    data, weight, bias, scale, offset = r.x
    plain = replace(r, x=[data, weight, bias], steps=("bias",))
    return [
        _then(each, lambda y: torch.addcmul(offset, y, scale, out=r.y).relu_())
        for each in convolution(plain)
    ]


def depthwise(r: Request) -> list[Way]:
    data, weight, *rest = r.x
    windows = Windows.of(r.sizes, 2)
    return _library_ways(data, weight.unsqueeze(2), windows, data.shape[3], r, rest)


def capsules(r: Request) -> list[Way]:
    """A convolution along h, w and i: (k,c) are its input channels, (j,co) its output channels.

    Either as a volume whose third axis is i, or as an image for each i, which costs copies.
    """
    data, weight = r.x
    n, h, w, q, _, _ = data.shape
    windows = Windows.of(r.sizes, 2)
    kernel = weight.permute(0, 1, 2, 4, 3, 5).reshape(*weight.shape[:2], q * weight.shape[4], -1)
    volume = data.reshape(n, h, w, q, -1)
    ways = _library_ways(volume, kernel.unsqueeze(2), windows.and_a_point(), 1, r, [])
    images = torch.empty(n, q, h, w, volume.shape[-1])
    folded = r.y.view(n, *r.y.shape[1:4], -1)

    def with_copies(way: Way) -> Way:
        def prepare() -> Call:
            call = way.prepare()

            def copied() -> Tensor:
                images.copy_(volume.permute(0, 3, 1, 2, 4))
                result = call()
                folded.copy_(result.view(n, q, *result.shape[1:]).permute(0, 2, 3, 1, 4))
                return r.y

            return copied

        return Way(f"as images, {way.name}", prepare)

    by_images = _library_ways(images.flatten(0, 1), kernel, windows, 1, r, [])
    return [*ways, *(with_copies(each) for each in by_images)]


def transposed(r: Request) -> list[Way]:
    data, weight, *rest = r.x
    windows = Windows.of(r.sizes, 2)
    how = Convolution(windows.stride, windows.pad, (1, 1), transposed=True)
    return _image_ways(data, weight.permute(2, 3, 0, 1), how, r, rest)


def max_pool(r: Request) -> Call:
    windows = Windows.of(r.sizes, 2)
    pool = partial(
        nnf.max_pool2d, _channels_second(r.x[0]), windows.taps, windows.stride, windows.pad,
        windows.dilation,
    )  # fmt: skip
    return lambda: _channels_last(pool())


def _channels_second(x: Tensor) -> Tensor:
    return x.permute(0, -1, *range(1, x.ndim - 1)) if x.ndim > 1 else x


def _channels_last(x: Tensor) -> Tensor:
    return x.permute(0, *range(2, x.ndim), 1)
