"""The inputs that several chains have."""

from __future__ import annotations

from benchmarks.collection.row import Input


def data(*shape: int) -> Input:
    return Input("x", shape)


def weights(*shape: int) -> Input:
    return Input("w", shape, role="weight")


def vectors(extent: int, *names: str) -> tuple[Input, ...]:
    """Return one vector per name, with an element per channel or column."""
    return tuple(Input(name, (extent,), role="weight") for name in names)


def statistics(channels: int) -> tuple[Input, ...]:
    """Return the running mean and variance, the weight and the bias of F.batch_norm."""
    return (
        *vectors(channels, "mean"),
        Input("var", (channels,), role="weight", values="positive"),
        *vectors(channels, "gamma", "beta"),
    )
