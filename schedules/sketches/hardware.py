"""What rules count on in every machine they were measured on, and no target says."""

from __future__ import annotations

LINE_BYTES = 64
"""A cache line, for counting what is late. Where hints are placed, `Cache.line_bytes` decides."""

PAGE_BYTES = 4096
"""Prefetchers follow rows that are less than this apart, and start anew at every page."""

BUSY_CHAINS = 8.0
"""Accumulators that keep two pipes of four cycles' latency busy."""

FEWEST_ROWS = 6
"""Of one of several tiles that read an operand in place: fewer rows take as long, since the second
cache gives lines no faster."""
