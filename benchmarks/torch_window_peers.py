"""How a practised user asks PyTorch (CPU) for convolutions and pooling.

Tensors are channels last, weights converted beforehand. There is no `out=`: results come from
PyTorch's allocator, which race.py makes keep its memory, so that no call pays for new pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as nnf
from torch import Tensor

from benchmarks.peer_types import Sizes, fastest
from benchmarks.windows import Windows

Call = Callable[[], Tensor]
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
_CONVOLUTIONS = {3: nnf.conv1d, 4: nnf.conv2d, 5: nnf.conv3d}


def finish(y: Tensor, steps: Sequence[str], rest: Sequence[Tensor]) -> Tensor:
    """What follows in place: `rest` are the tensors that are added."""
    added = iter(rest)
    for step in steps:
        match step:
            case "add" | "bias":
                y.add_(next(added))
            case "relu":
                y.relu_()
            case "relu6":
                y.clamp_(0, 6)
            case "gelu":
                torch.ops.aten.gelu_(y, approximate="tanh")
            case _:
                raise ValueError(f"no PyTorch spelling of the epilogue {step!r}")
    return y


def convolution(x: Sequence[Tensor], y: Tensor, sizes: Sizes, steps: Sequence[str]) -> Call:
    """X[N,*axes,CI] with W[*taps,CI/groups,CO], one axis to three."""
    data, weight, *rest = x
    windows = Windows.of(sizes, data.ndim - 2)
    groups = sizes.get("groups", 1)
    ways = [_library_call(data, weight, windows, groups, steps, rest)]
    if data.ndim == 3:  # as an image of one line, which has a channels-last form
        lifted = Windows(*((one, *each) for one, each in _with_ones(windows)))
        call = _library_call(
            data.unsqueeze(1), weight.unsqueeze(0), lifted, groups, steps,
            [r.unsqueeze(1) if r.ndim == 3 else r for r in rest],
        )  # fmt: skip
        ways.append(lambda: call().squeeze(1))
    if windows.pointwise and groups == 1:
        ways.append(_product(data, weight, y, steps, rest))
    return fastest(*ways)


def _with_ones(windows: Windows) -> list[tuple[int, tuple[int, ...]]]:
    return [(1, windows.taps), (1, windows.stride), (0, windows.pad), (1, windows.dilation)]


def _library_call(
    data: Tensor, weight: Tensor, windows: Windows, groups: int, steps: Sequence[str],
    rest: Sequence[Tensor],
) -> Call:  # fmt: skip
    """The library's convolution: a leading bias is its own, everything else follows in place.

    As PyTorch dispatches it, or oneDNN's by name (on one thread PyTorch prefers another, slower
    way for some sizes), with weights in both of their usual layouts.
    """
    image = _channels_second(data)
    plain = weight.permute(-1, -2, *range(weight.ndim - 2)).contiguous()
    kernels = [plain]
    if plain.ndim in _LAST:
        kernels.append(plain.contiguous(memory_format=_LAST[plain.ndim]))
    bias = rest[0] if steps[:1] == ["bias"] else None
    after = steps if bias is None else steps[1:]
    added = [_channels_second(r) for r in rest[0 if bias is None else 1 :]]
    named = data.ndim > 3 and "USE_MKLDNN=ON" in torch.__config__.show()

    def way(convolve: Callable[..., Tensor], kernel: Tensor, *arguments: object) -> Call:
        return lambda: _channels_last(
            finish(convolve(image, kernel, bias, *arguments, groups), after, added)
        )

    w = windows
    ways = []
    for kernel in kernels:
        ways.append(way(_CONVOLUTIONS[data.ndim], kernel, w.stride, w.pad, w.dilation))
        if named:
            ways.append(way(torch.mkldnn_convolution, kernel, w.pad, w.stride, w.dilation))
    return fastest(*ways)


def _product(
    data: Tensor, weight: Tensor, y: Tensor, steps: Sequence[str], rest: Sequence[Tensor]
) -> Call:
    """A pointwise convolution as the matrix product it is."""
    flat, matrix = data.reshape(-1, data.shape[-1]), weight.reshape(-1, weight.shape[-1])
    out = y.view(-1, y.shape[-1])
    bias = rest[0] if steps[:1] == ["bias"] else None
    added = [r.reshape(out.shape) for r in rest if r.ndim > 1]
    if bias is None:
        return lambda: finish(torch.mm(flat, matrix, out=out), steps, added)
    return lambda: finish(torch.addmm(bias, flat, matrix, out=out), steps[1:], added)


def conv_bn_relu(x: Sequence[Tensor], y: Tensor, sizes: Sizes, steps: Sequence[str]) -> Call:
    """Scale and offset are inputs, so they are not folded into the weights."""
    data, weight, bias, scale, offset = x
    convolve = convolution([data, weight, bias], y, sizes, ["bias"])
    return lambda: torch.addcmul(offset, convolve(), scale, out=y).relu_()


def depthwise(x: Sequence[Tensor], y: Tensor, sizes: Sizes, steps: Sequence[str]) -> Call:
    data, weight, *rest = x
    windows = Windows.of(sizes, 2)
    return _library_call(data, weight.unsqueeze(2), windows, data.shape[3], steps, rest)


def capsules(x: Sequence[Tensor], y: Tensor, sizes: Sizes, steps: Sequence[str]) -> Call:
    """A convolution along h, w and i: (k,c) are its input channels, (j,co) its output channels.

    Either as a volume whose third axis is i, or as an image for each i, which costs copies.
    """
    data, weight = x
    n, h, w, q, _, _ = data.shape
    windows = Windows.of(sizes, 2)
    kernel = weight.permute(0, 1, 2, 4, 3, 5).reshape(*weight.shape[:2], q * weight.shape[4], -1)
    volume = data.reshape(n, h, w, q, -1)
    as_volume = _library_call(volume, kernel.unsqueeze(2), windows.and_a_point(), 1, steps, [])
    images = torch.empty(n, q, h, w, volume.shape[-1])
    as_images = _library_call(images.flatten(0, 1), kernel, windows, 1, steps, [])
    folded = y.view(n, *y.shape[1:4], -1)

    def with_copies() -> Tensor:
        images.copy_(volume.permute(0, 3, 1, 2, 4))
        result = as_images()
        folded.copy_(result.view(n, q, *result.shape[1:]).permute(0, 2, 3, 1, 4))
        return y

    return fastest(as_volume, with_copies)


def transposed(x: Sequence[Tensor], y: Tensor, sizes: Sizes, steps: Sequence[str]) -> Call:
    data, weight, *rest = x
    windows = Windows.of(sizes, 2)
    image, added = _channels_second(data), [_channels_second(r) for r in rest]
    plain = weight.permute(2, 3, 0, 1).contiguous()

    def way(kernel: Tensor) -> Call:
        return lambda: _channels_last(
            finish(
                nnf.conv_transpose2d(image, kernel, None, windows.stride, windows.pad),
                steps, added,
            )
        )  # fmt: skip

    return fastest(way(plain), way(plain.contiguous(memory_format=torch.channels_last)))


def max_pool(x: Sequence[Tensor], y: Tensor, sizes: Sizes, steps: Sequence[str]) -> Call:
    windows = Windows.of(sizes, 2)
    pool = partial(
        nnf.max_pool2d, _channels_second(x[0]), windows.taps, windows.stride, windows.pad,
        windows.dilation,
    )  # fmt: skip
    return lambda: _channels_last(pool())


def _channels_second(x: Tensor) -> Tensor:
    return x.permute(0, -1, *range(1, x.ndim - 1)) if x.ndim > 1 else x


def _channels_last(x: Tensor) -> Tensor:
    return x.permute(0, *range(2, x.ndim), 1)
