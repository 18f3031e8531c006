"""Every way a knowing PyTorch user has of asking for a convolution on a CPU.

Images are channels last in memory (as views that name channels second), so no call turns them.
Weights are in PyTorch's order, turned beforehand, in both of its layouts; those that never change
may also lie in the blocks oneDNN asks for. There is no `out=`: PyTorch allocates each result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .torch_products import Epilogue, Tensor, activate, onednn_words
from .ways import Call, Way

_FUNCTIONS = {1: "conv1d", 2: "conv2d", 3: "conv3d"}


@dataclass(frozen=True, slots=True)
class Convolution:
    """How windows lie, an entry a spatial axis. `transposed`: the output is the larger one."""

    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False


def convolution_ways(
    image: Tensor, kernel: Tensor, how: Convolution, epilogue: Epilogue, *, constant: bool = False
) -> list[Way]:
    """Ways of `epilogue(convolution)`; each gives [N, CO, *out].

    `image` [N, CI, *in]; `kernel` [CO, CI/groups, *taps], [CI, CO/groups, *taps] if transposed;
    `epilogue.added` like the result. `constant`: the weights never change.
    """
    rank = image.ndim - 2
    kernels = {"": kernel.contiguous()}
    if rank > 1:
        import torch

        last = torch.channels_last if rank == 2 else torch.channels_last_3d
        kernels[", weights channels last"] = kernel.contiguous(memory_format=last)
    ways = []
    for said, weight in kernels.items():
        ways.append(Way(f"{_name(how, rank)}{said}", _dispatched(image, weight, how, epilogue)))
        if rank > 1:
            ways += _named(image, weight, how, epilogue, said)
    if constant and rank > 1:
        ways += _packed_ways(image, kernels[""], how, epilogue)
    return ways


def _name(how: Convolution, rank: int) -> str:
    return f"conv_transpose{rank}d" if how.transposed else _FUNCTIONS[rank]


def _dispatched(image: Tensor, weight: Tensor, how: Convolution, e: Epilogue) -> Callable[[], Call]:
    """As `torch.nn.functional` dispatches it; the rest of the epilogue follows in place."""

    def prepare() -> Call:
        import torch

        function = getattr(torch.nn.functional, _name(how, image.ndim - 2))
        if how.transposed:
            more: tuple[Any, ...] = (how.stride, how.pad, 0, how.groups, how.dilation)
        else:
            more = (how.stride, how.pad, how.dilation, how.groups)
        return lambda: e.after(function(image, weight, e.bias, *more), bias=False)

    return prepare


def _named(
    image: Tensor, weight: Tensor, how: Convolution, e: Epilogue, said: str
) -> Iterator[Way]:
    """oneDNN's by name, whatever PyTorch's dispatch prefers; and with the epilogue in the call."""
    if not how.transposed:

        def prepare() -> Call:
            import torch

            convolve = torch.mkldnn_convolution
            more = (how.pad, how.stride, how.dilation, how.groups)
            return lambda: e.after(convolve(image, weight, e.bias, *more), bias=False)

        yield Way(f"oneDNN convolution{said}", prepare)
    yield Way(f"oneDNN pointwise{said}", lambda: _pointwise(image, weight, how, e))


def _packed_ways(image: Tensor, weight: Tensor, how: Convolution, e: Epilogue) -> Iterator[Way]:
    import torch

    ops = torch.ops.mkldnn
    size = list(image.shape)

    def blocked() -> Call:
        if how.transposed:
            packed = ops._reorder_convolution_transpose_weight(
                weight, how.pad, [0] * len(how.pad), how.stride, how.dilation, how.groups, size
            )
        else:
            packed = ops._reorder_convolution_weight(
                weight, how.pad, how.stride, how.dilation, how.groups, size
            )
        return _pointwise(image, packed, how, e)

    yield Way("oneDNN pointwise, weights packed", blocked)


def _pointwise(image: Tensor, weight: Tensor, how: Convolution, e: Epilogue) -> Call:
    """One call of oneDNN, the epilogue in it: the sum with a tensor is followed by relu only."""
    import torch

    ops, words = torch.ops.mkldnn, onednn_words(e.activation)
    if how.transposed:
        if e.added is not None:
            raise ValueError("no transposed convolution with a tensor to add")
        call = ops._convolution_transpose_pointwise.default
        more = (how.pad, [0] * len(how.pad), how.stride, how.dilation, how.groups)
        return lambda: call(image, weight, e.bias, *more, *words)
    places = (how.pad, how.stride, how.dilation, how.groups)
    if e.added is None:
        single = ops._convolution_pointwise.default
        return lambda: single(image, weight, e.bias, *places, *words)
    binary = ops._convolution_pointwise.binary
    fused = "relu" if e.activation == "relu" else None
    rest = "" if fused else e.activation
    return lambda: activate(
        binary(image, e.added, weight, e.bias, *places, "add", 1.0, fused, [], None), rest
    )
