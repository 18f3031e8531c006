"""Hardware constants that no target states: the same on all machines that were measured."""

from __future__ import annotations

PAGE_BYTES = 4096
"""Prefetchers follow rows that are less than this apart, and start anew at every page. Published:
the smallest page of x86-64 and AArch64 (their architecture manuals)."""

FMA_PIPES = 2
"""Vector multiply-add units a core of every server CPU since 2014 has, at its widest vector.
Published: Fog, "Instruction tables" (2024), and LLVM's scheduling models."""

FMA_LATENCY = 4.0
"""Cycles from a multiply-add to the next of its chain. Published: the same, for Zen 3 to 5, Skylake
to Golden Cove, Neoverse N1 to V2."""

LOAD_PORTS = 2
"""Vectors that a core loads a cycle from its first cache. Published: the same."""

BUSY_CHAINS = FMA_PIPES * FMA_LATENCY
"""Accumulators that keep the pipes busy."""

FEWEST_ROWS = 6
"""Of one of several tiles that read an operand in place: fewer rows take as long, since the second
cache gives lines no faster. Source: measured, `python -m benchmarks.prior constants`."""

USABLE_SHARE = 0.75
"""Of a cache, or of its rate, what is counted on: the rest goes to other data. Source: measured on
a Zen 5, `python -m benchmarks.prior constants`; all of it loses single rows."""

LINES_TO_FOLLOW = 2.0
"""Lines of a run that a hardware prefetcher has to see before it follows. Source: measured on a
Zen 5, `python -m benchmarks.prior constants`: one line or three lose single rows only."""
