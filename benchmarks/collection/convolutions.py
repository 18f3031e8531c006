"""Convolutions and transposed convolutions in PyTorch's layouts: NCHW images, OIHW filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.collection.layers import conv
from benchmarks.collection.row import Input, Row
from tilewright import operators

_SUFFIX = {1: "ncl", 2: "nchw", 3: "ncdhw"}
_AXES = {1: "L", 2: "HW", 3: "DHW"}
Sizes = int | Sequence[int]


def _operator_sizes(
    x: tuple[int, ...], out: int, taps: Sequence[int], groups: int, window: dict[str, Sizes]
) -> dict[str, int]:
    """Return the parameters of the library's operator."""
    axes = _AXES[len(taps)]
    found = dict(zip(("N", "CI", *axes), x, strict=True)) | {"CO": out, "groups": groups}
    for name, value in {"K": taps, **window}.items():
        each = [value] * len(axes) if isinstance(value, int) else value
        for axis, one in zip(axes, each, strict=True):
            per_axis = f"{name}{axis}" if name == "K" else f"{name}_{axis.lower()}"
            found[name if len(axes) == 1 else per_axis] = one
    return found


def _torch_window(window: dict[str, Sizes], *, names: dict[str, str]) -> dict[str, Any]:
    return {
        names.get(name, name): value if isinstance(value, int) else tuple(value)
        for name, value in window.items()
    }


def _conv(
    name: str, x: tuple[int, ...], out: int, taps: Sequence[int], groups: int = 1, **window: Sizes
) -> Row:
    """Return a convolution with `out` channels; `window` has stride, pad and dilation."""
    rank = len(taps)
    sizes = _operator_sizes(x, out, taps, groups, window)
    named = _torch_window(window, names={"pad": "padding"})
    weights = (out, x[1] // groups, *taps)
    return Row(
        f"conv_{rank}d_{name}",
        (Input("x", x), Input("w", weights, role="weight")),
        lambda F, x, w: getattr(F, f"conv{rank}d")(x, w, groups=groups, **named),
        lambda x, w: operators.build(f"conv{rank}d_{_SUFFIX[rank]}", sizes),
    )


def _transposed(
    name: str, x: tuple[int, ...], out: int, taps: Sequence[int], groups: int = 1, **window: Sizes
) -> Row:
    """Return a transposed convolution; `window` may have out_pad, too."""
    rank = len(taps)
    sizes = _operator_sizes(x, out, taps, groups, window)
    named = _torch_window(window, names={"pad": "padding", "out_pad": "output_padding"})
    weights = (x[1], out // groups, *taps)
    return Row(
        f"conv_transpose_{rank}d_{name}",
        (Input("x", x), Input("w", weights, role="weight")),
        lambda F, x, w: getattr(F, f"conv_transpose{rank}d")(x, w, groups=groups, **named),
        lambda x, w: operators.build(f"conv{rank}d_transpose_{_SUFFIX[rank]}", sizes),
    )


def _depthwise(name: str, x: tuple[int, ...], taps: tuple[int, int]) -> Row:
    n, c, h, w = x
    sizes = {"N": n, "C": c, "H": h, "W": w, "KH": taps[0], "KW": taps[1]}
    return Row(
        f"depthwise_2d_{name}",
        (Input("x", x), Input("w", (c, 1, *taps), role="weight")),
        lambda F, x, w: F.conv2d(x, w, groups=c),
        lambda x, w: operators.depthwise_conv2d_nchw(**sizes),
    )


STANDARD = (
    _conv("square_input_square_kernel_strided", (16, 3, 224, 224), 96, (11, 11), stride=4, pad=2),
    _conv("square_input_square_kernel", (4, 16, 128, 128), 128, (3, 3)),
    _conv("asymmetric_input_square_kernel", (1, 64, 64, 128), 128, (3, 3)),
    _conv("asymmetric_input_asymmetric_kernel", (1, 64, 48, 96), 128, (5, 7)),
    _conv("square_input_asymmetric_kernel", (4, 32, 64, 64), 64, (5, 9)),
    _conv("square_input_asymmetric_kernel_dilated_padded", (2, 32, 64, 64), 64, (5, 9),
          pad=(2, 4), dilation=(2, 3)),
    _conv("square_input_square_kernel", (1, 3, 64, 64, 64), 64, (3, 3, 3)),
    _conv("asymmetric_input_square_kernel", (2, 3, 128, 128, 10), 64, (3, 3, 1)),
    _conv("square_input_asymmetric_kernel", (1, 3, 40, 40, 40), 64, (3, 5, 7)),
    _conv("asymmetric_input_asymmetric_kernel", (1, 3, 16, 64, 64), 64, (3, 5, 7)),
    _conv("standard", (2, 64, 16384), 128, (3,)),
    _conv("dilated_strided", (4, 64, 16384), 128, (3,), stride=3, dilation=4),
)  # fmt: skip

TRANSPOSED = (
    _transposed("standard", (1, 128, 16384), 128, (3,)),
    _transposed("dilated", (2, 32, 32768), 64, (5,), dilation=3),
    _transposed("padded_strided_dilated", (4, 32, 32768), 64, (3,), stride=2, pad=1, dilation=2),
    _transposed("square_input_square_kernel", (2, 64, 96, 96), 64, (3, 3)),
    _transposed("square_input_asymmetric_kernel", (2, 64, 64, 64), 64, (3, 7)),
    _transposed("asymmetric_input_asymmetric_kernel", (1, 64, 64, 128), 128, (3, 5)),
    _transposed("asymmetric_input_square_kernel", (2, 32, 128, 256), 32, (3, 3)),
    _transposed("asymmetric_input_asymmetric_kernel_padded", (2, 32, 96, 192), 32, (3, 7),
                pad=(1, 3)),
    _transposed("asymmetric_input_asymmetric_kernel_strided_grouped_padded_dilated",
                (4, 32, 64, 128), 64, (3, 5), groups=4, stride=(2, 3), pad=(1, 2),
                dilation=(2, 1)),
    _transposed("asymmetric_input_square_kernel_dilated_padded_strided", (4, 32, 32, 64), 64,
                (3, 3), stride=5, pad=1, dilation=2),
    _transposed("square_input_square_kernel", (1, 32, 32, 32, 32), 32, (3, 3, 3)),
    _transposed("asymmetric_input_asymmetric_kernel", (1, 32, 16, 16, 32), 16, (3, 5, 7)),
    _transposed("square_input_asymmetric_kernel", (1, 32, 16, 16, 16), 64, (3, 5, 5)),
    _transposed("asymmetric_input_square_kernel", (1, 48, 16, 24, 32), 24, (3, 3, 3)),
    _transposed("asymmetric_input_asymmetric_kernel_strided_padded_grouped", (1, 32, 12, 24, 48),
                32, (3, 5, 7), groups=4, stride=2, pad=(1, 2, 3), out_pad=1),
    _transposed("asymmetric_input_square_kernel_strided_padded_grouped", (2, 32, 16, 32, 64), 32,
                (3, 3, 3), groups=4, stride=2, pad=1),
    _transposed("square_input_square_kernel_padded_dilated_strided", (1, 32, 20, 20, 20), 64,
                (3, 3, 3), stride=2, pad=1, dilation=2),
)  # fmt: skip

_SEPARABLE = (
    Input("x", (4, 64, 128, 128)),
    Input("depthwise", (64, 1, 3, 3), role="weight"),
    Input("pointwise", (128, 64, 1, 1), role="weight"),
)

DEPTHWISE = (
    _depthwise("square_input_square_kernel", (4, 64, 256, 256), (3, 3)),
    _depthwise("square_input_asymmetric_kernel", (4, 32, 384, 384), (3, 1)),
    _conv("depthwise_asymmetric_input_two_outputs_per_channel", (2, 64, 128, 256), 128, (3, 3),
          groups=64),
    _depthwise("asymmetric_input_asymmetric_kernel", (8, 32, 128, 256), (3, 7)),
    Row("depthwise_separable_2d", _SEPARABLE,
        lambda F, x, d, p: F.conv2d(F.conv2d(x, d, padding=1, groups=64), p),
        lambda x, d, p: conv(conv(x, d, pad=1, groups=64), p)),
    _conv("pointwise", (2, 64, 256, 256), 128, (1, 1)),
)  # fmt: skip

ROWS = (*STANDARD, *TRANSPOSED, *DEPTHWISE)
