"""A small project that picks schedules with Tilewright; its tests need no special hardware."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.schedules import Workload, parse_workload
from tilewright.tuner.session.report import TuneReport

LAYERS = ("matmul:M=64,N=256,K=128,epilogue=bias+relu", "softmax_mn:M=64,N=256")

Tune = Callable[[Workload], TuneReport]


class NoScheduleError(Exception):
    """A layer for which no candidate passed."""


def choose_schedules(tune: Tune) -> dict[str, str]:
    """The record to build each layer from: layer to record key. NoScheduleError names a layer."""
    chosen: dict[str, str] = {}
    for layer in LAYERS:
        best = tune(parse_workload(layer)).best
        if best is None or not best.verified:
            raise NoScheduleError(f"{layer}: no candidate passed")
        chosen[layer] = best.record_key
    return chosen
