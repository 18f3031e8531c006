"""Peers whose variants are all checked and hardly raced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest

from tilewright.peers.variants import FastestVariant, PeerVariant, choose

Check = Callable[[Any], str | None]


def record_variants(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> set[str]:
    """Let `choose` in `module` race for no time; the set gets the names of variants that work."""
    working: set[str] = set()

    def at_once(variants: Sequence[PeerVariant], check: Check) -> FastestVariant:
        choice = choose(variants, check, 0.0)
        working.update(v.name for v in variants if v.name not in choice.dropped)
        return choice

    monkeypatch.setattr(module, "choose", at_once)
    return working


def choose_only(monkeypatch: pytest.MonkeyPatch, module: ModuleType, wanted: str) -> list[str]:
    """Let `choose` in `module` take the variant `wanted` where there is one, checked against the
    first; the list gets the names of all that were offered."""
    offered: list[str] = []

    def only_that(variants: Sequence[PeerVariant], check: Check) -> FastestVariant:
        offered.extend(variant.name for variant in variants)
        assert check(variants[0].prepare()()) is None
        matching = [variant for variant in variants if variant.name == wanted]
        return choose(matching or variants, check, 0.0)

    monkeypatch.setattr(module, "choose", only_that)
    return offered
