"""Every case by name, and the workload of each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from benchmarks.suite.cases import EXPRESSIONS, GEMMS, OPERATORS, Case
from benchmarks.suite.operator_suite import constant_cases, heavy_cases, suite_cases
from tilewright.schedules.workload.workload import Workload


@cache
def every_case() -> Mapping[str, Case]:
    """All cases by name."""
    suite = (suite_cases(), heavy_cases(), constant_cases())
    groups = (GEMMS.values(), OPERATORS, EXPRESSIONS, *suite)
    return {case.name: case for group in groups for case in group}


def workload_of(case: Case, sizes: Mapping[str, int] | None = None) -> Workload:
    """The case's workload, at `sizes` or its own."""
    from tilewright.schedules.spelling import parse_workload

    words = case.spelled(sizes or case.sizes)
    if words[0] != "--expr":
        return parse_workload(words[0])
    options: dict[str, list[str]] = {"--expr": [], "--tensor": [], "--range": []}
    for flag, value in zip(words[::2], words[1::2], strict=True):
        options[flag].append(value)
    return parse_workload(
        expr=options["--expr"][0], tensors=options["--tensor"], ranges=options["--range"]
    )
