"""Normalisations and pooling."""

from __future__ import annotations

from typing import Any

import tilewright as tw
from benchmarks.collection.row import Input, Row
from tilewright import operators

_IMAGES = (4, 64, 256, 256)
_IMAGE_SIZES = {"N": 4, "C": 64, "H": 256, "W": 256}
_ROWS = (2048, 8192)
_EPS = 1e-5
_CHANNELS = tuple(Input(name, (64,), role="weight") for name in ("gamma", "beta"))
_LAYER = tuple(Input(name, _IMAGES[1:], role="weight") for name in ("gamma", "beta"))


def _standard(x: Any, axes: tuple[int, ...]) -> Any:
    d = x - x.mean(axes, keepdims=True)
    return d * tw.rsqrt((d * d).mean(axes, keepdims=True) + _EPS)


NORMS = (
    Row("batch_norm", (Input("x", _IMAGES), *_CHANNELS),
        lambda F, x, g, b: F.batch_norm(x, None, None, g, b, training=True),
        lambda x, g, b: operators.batch_norm_train_nchw(**_IMAGE_SIZES)),
    Row("instance_norm", (Input("x", _IMAGES),), lambda F, x: F.instance_norm(x),
        lambda x: _standard(x, (2, 3))),
    Row("group_norm", (Input("x", _IMAGES), *_CHANNELS),
        lambda F, x, g, b: F.group_norm(x, 8, g, b),
        lambda x, g, b: operators.group_norm_nchw(**_IMAGE_SIZES, groups=8)),
    Row("rms_norm", (Input("x", _IMAGES),),
        lambda F, x: x / (x.pow(2).mean(1, keepdim=True) + _EPS).sqrt(),
        lambda x: x / tw.sqrt((x * x).mean(1, keepdims=True) + _EPS)),
    Row("frobenius_norm", (Input("x", _IMAGES),), lambda F, x: x / F.torch.norm(x, p="fro"),
        lambda x: x / tw.sqrt((x * x).sum())),
    Row("l1_norm", (Input("x", _ROWS),), lambda F, x: x / x.abs().mean(1, keepdim=True),
        lambda x: x / abs(x).mean(1, keepdims=True)),
    Row("l2_norm", (Input("x", _ROWS),), lambda F, x: x / F.torch.norm(x, p=2, dim=1, keepdim=True),
        lambda x: x / tw.sqrt((x * x).sum(1, keepdims=True))),
    Row("layer_norm", (Input("x", _IMAGES), *_LAYER),
        lambda F, x, g, b: F.layer_norm(x, _IMAGES[1:], g, b),
        lambda x, g, b: _standard(x, (1, 2, 3)) * g + b),
)  # fmt: skip

_SUFFIX = {1: "ncl", 2: "nchw", 3: "ncdhw"}
_AXES = {1: "L", 2: "HW", 3: "DHW"}


def _pool(kind: str, shape: tuple[int, ...], size: int, **window: int) -> Row:
    """Return a row of max or average pooling with the windows of an operator of the library."""
    rank = len(shape) - 2
    sizes = dict(zip(("N", "C", *_AXES[rank]), shape, strict=True))
    named = {"stride": window["stride"], "padding": window.get("pad", 0)}
    if "dilation" in window:
        named["dilation"] = window["dilation"]
    return Row(
        f"{kind}_pool_{rank}d",
        (Input("x", shape),),
        lambda F, x: getattr(F, f"{kind}_pool{rank}d")(x, size, **named),
        lambda x: operators.build(f"{kind}_pool{rank}d_{_SUFFIX[rank]}", sizes, K=size, **window),
    )


POOLS = (
    _pool("max", (16, 64, 8192), 8, stride=1, pad=4, dilation=3),
    _pool("max", (2, 64, 256, 256), 4, stride=1, pad=1, dilation=1),
    _pool("max", (2, 32, 64, 64, 64), 3, stride=2, pad=1, dilation=3),
    _pool("avg", (16, 128, 8192), 8, stride=1, pad=4),
    _pool("avg", (4, 64, 256, 256), 11, stride=11),
    _pool("avg", (2, 32, 48, 64, 64), 3, stride=2, pad=1),
)

ROWS = (*NORMS, *POOLS)
