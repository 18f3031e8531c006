"""Rewrites: the first steps of a trace. They change the expression, not the loops.

A primitive preserves every value up to the order of sums. A rewrite computes the same values with
other operations and so has an additional error. `stated_error` bounds this error. It is 0 if the
rewrite only reassociates sums and products. Such a rewrite is legal for every workload if it
preserves infinities, NaN and signs of zeros, otherwise only for workloads that allow some error.
Any other rewrite is legal if `Workload.allowed_error` is at least the stated error.
"""

from __future__ import annotations

from .common_stage import ExtractCommonStage
from .compact_outputs import CompactOutputs
from .copy_output import CopyOutput
from .deinterleave import Deinterleave
from .gather_over_taps import GatherOverTaps
from .gather_selected import GatherSelected
from .index_tests import IndexTestsFirst
from .locate_extreme import LocateExtreme
from .mask_result import MaskResult
from .merge_axes import MergeAxes
from .permute_axes import PermuteAxes
from .precompute_factors import PrecomputeFactors
from .read_through import ReadThrough
from .reduce_axis_last import ReduceAxisLast
from .repeat_conditions import RepeatConditions
from .repeat_elements import RepeatElements
from .reverse_axis import ReverseAxis
from .rewrite import Rewrite, changing_operations, check_order
from .scan_prefixes import ScanPrefixes
from .search_blocks import SearchBlocks
from .select_outputs import SelectOutputs
from .split_axis import SplitAxis
from .split_tuples import SplitTuples
from .winograd import Winograd

REWRITES: tuple[type[Rewrite], ...] = (
    Winograd, PrecomputeFactors, PermuteAxes, GatherOverTaps, ExtractCommonStage, MergeAxes,
    ReadThrough, ReverseAxis, CompactOutputs, Deinterleave, ReduceAxisLast, RepeatElements,
    MaskResult, RepeatConditions, SplitTuples, LocateExtreme, SplitAxis, CopyOutput, SearchBlocks,
    ScanPrefixes, GatherSelected, IndexTestsFirst, SelectOutputs,
)  # fmt: skip
"""All rewrites. A new rewrite is added here and to the forms in `sketches.forms`."""

__all__ = [
    "REWRITES", "CompactOutputs", "CopyOutput", "Deinterleave", "ExtractCommonStage",
    "GatherOverTaps", "GatherSelected", "IndexTestsFirst", "LocateExtreme", "MaskResult",
    "MergeAxes", "PermuteAxes", "PrecomputeFactors", "ReadThrough", "ReduceAxisLast",
    "RepeatConditions", "RepeatElements", "ReverseAxis", "Rewrite", "ScanPrefixes", "SearchBlocks",
    "SelectOutputs", "SplitAxis", "SplitTuples", "Winograd", "changing_operations", "check_order",
]  # fmt: skip
