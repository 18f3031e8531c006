"""The prober of another kind of machine: every core computes 100 GFLOP/s, and regions are free."""

from __future__ import annotations

import json
import sys

cores = json.load(sys.stdin)["cores"]
peaks = {"f32": [100.0 * (n + 1) for n in range(cores)]}
json.dump({"peak_gflops": peaks, "parallel_region_secs": 0.0}, sys.stdout)
