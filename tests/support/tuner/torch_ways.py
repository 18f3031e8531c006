"""PyTorch's ways to compute a workload, tried without being raced for long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tilewright.tuner.bench import torch_peer
from tilewright.tuner.bench.ways import FastestPeer, Way, choose


def raced_quickly(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Peers made from now on race their ways for no time; the set grows by those that worked."""
    raced: set[str] = set()

    def quickly(ways: Sequence[Way], check: Any) -> FastestPeer:
        choice = choose(ways, check, 0.0)
        raced.update(way.name for way in ways if way.name not in choice.dropped)
        return choice

    monkeypatch.setattr(torch_peer, "choose", quickly)
    return raced
