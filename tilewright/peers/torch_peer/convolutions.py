"""Variants of a convolution on a CPU that PyTorch offers.

Images have channels last in memory (as views with channels second), so no call transposes them.
Weights are permuted to PyTorch's order before timing, in both of its memory formats; constant
weights may also be in oneDNN's blocked layout. There is no `out=`: PyTorch allocates each result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..forms.convolution import ConvolutionForm
from ..variants import Call, PeerVariant
from .products import ProductEpilogue, Tensor, activate, onednn_words

Read = Callable[[], Tensor]
"""A callable that returns an operand, possibly another tensor in every call."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """Geometry of the windows, one entry per spatial axis. If `transposed`, the output is larger
    than the data, and no window reaches the last `more` elements of the output."""

    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    more: tuple[int, ...] = ()

    @property
    def output_padding(self) -> tuple[int, ...]:
        return self.more or (0,) * len(self.pad)

    @property
    def of_a_line(self) -> Convolution:
        """The same geometry with an additional first axis of one element."""
        return replace(
            self, stride=(1, *self.stride), pad=(0, *self.pad), dilation=(1, *self.dilation)
        )


def library_convolution(
    form: ConvolutionForm, in_shape: Sequence[int], taps: Sequence[int]
) -> tuple[Convolution, tuple[tuple[int, int], ...]]:
    """Return the library's parameters of `form`, and the padding that must be added to the data
    before the call. The padding is zero if the library can pad that way. `in_shape` is the spatial
    shape of the data, and `taps` is the size of the windows."""
    none = ((0, 0),) * len(taps)
    if form.transposed:
        # Along each axis the library's output ends at whole - pad - 1, whole = (n - 1) s + span.
        spans = zip(in_shape, taps, form.stride, form.dilation, form.spans, strict=True)
        over = tuple(hi + 1 - ((n - 1) * s + d * (k - 1) + 1) for n, k, s, d, (_, hi) in spans)
        more = tuple(max(0, each + lo) for each, (lo, _) in zip(over, form.spans, strict=True))
        pad = tuple(lo for lo, _ in form.spans)
        return Convolution(form.stride, pad, form.dilation, form.groups, True, more), none
    around = tuple((-lo, hi - n + 1) for n, (lo, hi) in zip(in_shape, form.spans, strict=True))
    if all(before >= 0 and after <= before for before, after in around):  # the rest is cropped
        pad = tuple(before for before, _ in around)
        return Convolution(form.stride, pad, form.dilation, form.groups), none
    zeros = (0,) * len(taps)
    return Convolution(form.stride, zeros, form.dilation, form.groups), around


def framed(image: Tensor, around: Sequence[tuple[int, int]], value: float = 0.0) -> Tensor:
    """Pad `image` with `value` by (before, after) per spatial axis; negative entries crop."""
    import torch

    flat = [each for pair in reversed(around) for each in pair]
    return torch.nn.functional.pad(image, flat, value=value) if any(flat) else image


def convolution_variants(
    image: Read,
    kernel: Tensor,
    how: Convolution,
    epilogue: ProductEpilogue,
    *,
    constant: bool = False,
) -> list[PeerVariant]:
    """Return variants of `epilogue(convolution)`; each returns [N, CO, *out].

    `image` returns [N, CI, *in]; `kernel` is [CO, CI/groups, *taps], or [CI, CO/groups, *taps] if
    transposed; `epilogue.added` has the result's shape. `constant`: the weights never change.
    """
    rank = kernel.ndim - 2
    kernels = {"": kernel.contiguous()}
    if rank > 1:
        import torch

        last = torch.channels_last if rank == 2 else torch.channels_last_3d
        kernels[", weights channels last"] = kernel.contiguous(memory_format=last)
    variants = []
    for said, weight in kernels.items():
        variants.append(
            PeerVariant(f"{_name(how, rank)}{said}", dispatched(image, weight, how, epilogue))
        )
        if rank > 1:
            variants += _named(image, weight, how, epilogue, said)
    if constant and rank > 1:
        variants += _packed_variants(image, kernels[""], how, epilogue)
    return variants


def _name(how: Convolution, rank: int) -> str:
    return f"conv{'_transpose' if how.transposed else ''}{rank}d"


def dispatched(
    image: Read, weight: Tensor, how: Convolution, e: ProductEpilogue
) -> Callable[[], Call]:
    """Return the call that `torch.nn.functional` dispatches. The rest of the epilogue works in
    place."""

    def prepare() -> Call:
        import torch

        function = getattr(torch.nn.functional, _name(how, weight.ndim - 2))
        if how.transposed:
            more: tuple[Any, ...] = (
                how.stride, how.pad, how.output_padding, how.groups, how.dilation
            )  # fmt: skip
        else:
            more = (how.stride, how.pad, how.dilation, how.groups)
        return lambda: e.after(function(image(), weight, e.bias, *more), bias=False)

    return prepare


def _named(
    image: Read, weight: Tensor, how: Convolution, e: ProductEpilogue, said: str
) -> Iterator[PeerVariant]:
    """Yield variants that call oneDNN without PyTorch's dispatch. One of them includes the
    epilogue."""
    if not how.transposed:

        def prepare() -> Call:
            import torch

            convolve = torch.mkldnn_convolution
            more = (how.pad, how.stride, how.dilation, how.groups)
            return lambda: e.after(convolve(image(), weight, e.bias, *more), bias=False)

        yield PeerVariant(f"oneDNN convolution{said}", prepare)
    yield PeerVariant(f"oneDNN pointwise{said}", lambda: _pointwise(image, weight, how, e))


def _packed_variants(
    image: Read, weight: Tensor, how: Convolution, e: ProductEpilogue
) -> Iterator[PeerVariant]:
    import torch

    ops = torch.ops.mkldnn
    size = list(image().shape)

    def blocked() -> Call:
        if how.transposed:
            packed = ops._reorder_convolution_transpose_weight(
                weight,
                how.pad,
                list(how.output_padding),
                how.stride,
                how.dilation,
                how.groups,
                size,
            )
        else:
            packed = ops._reorder_convolution_weight(
                weight, how.pad, how.stride, how.dilation, how.groups, size
            )
        return _pointwise(image, packed, how, e)

    yield PeerVariant("oneDNN pointwise, weights packed", blocked)


def _pointwise(image: Read, weight: Tensor, how: Convolution, e: ProductEpilogue) -> Call:
    """Return one call of oneDNN with the epilogue. If the epilogue adds a tensor, relu is the only
    activation that the call includes."""
    import torch

    ops, words = torch.ops.mkldnn, onednn_words(e.activation)
    if how.transposed:
        if e.added is not None:
            raise ValueError("no transposed convolution with a tensor to add")
        call = ops._convolution_transpose_pointwise.default
        more = (how.pad, list(how.output_padding), how.stride, how.dilation, how.groups)
        return lambda: call(image(), weight, e.bias, *more, *words)
    places = (how.pad, how.stride, how.dilation, how.groups)
    if e.added is None:
        single = ops._convolution_pointwise.default
        return lambda: single(image(), weight, e.bias, *places, *words)
    binary = ops._convolution_pointwise.binary
    fused = "relu" if e.activation == "relu" else None
    rest = "" if fused else e.activation
    return lambda: activate(
        binary(image(), e.added, weight, e.bias, *places, "add", 1.0, fused, [], None), rest
    )
