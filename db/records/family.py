"""Targets that may resemble each other: those of one architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.schedules.target import Target


def is_of_family(target: Target, document: Mapping[str, Any]) -> bool:
    """Return whether `document` describes a target of the same architecture."""
    return str(document.get("triple", "")).partition("-")[0] == target.architecture


def vectors_differ(target: Target, document: Mapping[str, Any]) -> bool:
    """Return whether a target has vectors of another length, or another number of vector
    registers: its spaces have other tiles."""
    own = target.vector_bits, target.vector_registers
    return own != (document.get("vector_bits"), document.get("vector_registers"))


def machine_name(target: Target, document: Mapping[str, Any]) -> str:
    """Return a name of the machine for users: its CPU, and what else tells it from `target`."""
    cpu, threads = str(document.get("cpu", "another CPU")), document.get("threads", 1)
    if threads == target.threads:
        return cpu
    return f"{cpu} with {threads} thread{'' if threads == 1 else 's'}"
