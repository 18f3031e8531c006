"""Hardware constants that targets do not state because they are equal on all measured machines."""

from __future__ import annotations

PAGE_BYTES = 4096
"""Size of a page. Prefetchers follow rows at a stride below this and restart at every page
boundary. Published: the smallest page of x86-64 and AArch64 (their architecture manuals)."""

FMA_PIPES = 2
"""Vector multiply-add units per core of every server CPU since 2014, at its widest vector.
Published: Fog, "Instruction tables" (2024), and LLVM's scheduling models."""

FMA_LATENCY = 4.0
"""Cycles from a multiply-add to a dependent one. Published: Fog, "Instruction tables" (2024), and
LLVM's scheduling models, for Zen 3 to 5, Skylake to Golden Cove, Neoverse N1 to V2."""

LOAD_PORTS = 2
"""Vectors that a core loads from its first cache per cycle. Published: Fog, "Instruction tables"
(2024), and LLVM's scheduling models."""

BUSY_CHAINS = FMA_PIPES * FMA_LATENCY
"""Number of independent accumulators that keep the multiply-add pipelines busy."""

FEWEST_ROWS = 6
"""Smallest useful number of rows per tile if several tiles read an operand in place (not packed).
Tiles with fewer rows are not faster, because the bandwidth of L2 limits them. Source: measured,
`python -m benchmarks.prior constants`."""

USABLE_SHARE = 0.75
"""Fraction of a cache's capacity or bandwidth that the model assumes to be available; other data
uses the rest. Source: measured on a Zen 5, `python -m benchmarks.prior constants`."""

LINES_TO_FOLLOW = 2.0
"""Number of consecutive lines that a hardware prefetcher must observe before it prefetches the
lines after them. Source: measured on a Zen 5, `python -m benchmarks.prior constants`."""

OPS_IN_FLIGHT = 128.0
"""Vector instructions that can wait for their operands while later ones execute. Published:
capacity of the queues and schedulers of Zen 3 and 4 (their optimisation guides); other cores have
53-97 to 210."""
