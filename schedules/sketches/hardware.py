"""What rules count on in every machine they were measured on, and no target says."""

from __future__ import annotations

LINE_BYTES = 64
"""A cache line, for counting what is late. Where hints are placed, `Cache.line_bytes` decides."""

PAGE_BYTES = 4096
"""Prefetchers follow rows that are less than this apart, and start anew at every page."""

BUSY_CHAINS = 8.0
"""Accumulators that keep two pipes of four cycles' latency busy."""

COST_OF_A_LATE_LINE = 4.0
"""In misses of a cache near by: several are under way at a time."""

LOADS_A_HINT = 0.5
"""Hints share the ports of loads, and nothing waits for them."""
