"""Access rules of all routes in one table, which is the only place that makes a route public.

A route that is not listed requires the scope `admin` if keys are required;
`tests/service/test_route_matrix.py` fails for it. On every route with a path parameter `job_id`,
the job of another owner is not found.
"""

from __future__ import annotations

from dataclasses import dataclass
from re import Pattern
from typing import Any

from starlette.routing import compile_path

from tilewright.service.access.keys import KeyScope


@dataclass(frozen=True, slots=True)
class Rule:
    """Access rule of a route. `scope` None makes it public, without reading the database.
    `streams`: the response is long-lived; the number of open streams per owner is limited."""

    scope: KeyScope | None
    streams: bool = False


OPEN = Rule(None)
READ = Rule(KeyScope.READ)
SUBMIT = Rule(KeyScope.SUBMIT)
PUBLISH = Rule(KeyScope.PUBLISH)
ADMIN = Rule(KeyScope.ADMIN)
STREAM = Rule(KeyScope.READ, streams=True)

RULES: dict[tuple[str, str], Rule] = {
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/limits"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/docs"): OPEN,
    ("GET", "/metrics"): READ,
    ("POST", "/v1/jobs"): SUBMIT,
    ("GET", "/v1/jobs"): READ,
    ("GET", "/v1/jobs/{job_id}"): READ,
    ("POST", "/v1/jobs/{job_id}:cancel"): SUBMIT,
    ("GET", "/v1/jobs/{job_id}/events"): STREAM,
    ("GET", "/v1/jobs/{job_id}/trials"): READ,
    ("GET", "/v1/best/{workload_key}/{target_key}"): READ,
    ("POST", "/v1/best:lookup"): READ,
    ("POST", "/v1/records"): PUBLISH,
    ("GET", "/v1/records/{key}"): READ,
    ("GET", "/v1/blobs/{key}"): READ,
    ("POST", "/v1/builds"): SUBMIT,
    ("POST", "/v1/builds:check"): READ,
    ("GET", "/v1/fleet"): READ,
    ("GET", "/static/{name}"): OPEN,
    ("GET", "/login"): OPEN,
    ("POST", "/login"): OPEN,
    ("POST", "/logout"): OPEN,
    ("GET", "/"): READ,
    ("GET", "/jobs/list"): READ,
    ("GET", "/jobs/new"): READ,
    ("POST", "/jobs"): SUBMIT,
    ("POST", "/jobs/check"): SUBMIT,
    ("GET", "/jobs/{job_id}"): READ,
    ("GET", "/jobs/{job_id}/facts"): READ,
    ("GET", "/jobs/{job_id}/result"): READ,
    ("GET", "/jobs/{job_id}/trials"): READ,
    ("GET", "/jobs/{job_id}/trials.json"): READ,
    ("GET", "/jobs/{job_id}/trials.csv"): READ,
    ("GET", "/jobs/{job_id}/importance"): READ,
    ("GET", "/jobs/{job_id}/compare"): READ,
    ("GET", "/jobs/compare"): READ,
    ("POST", "/jobs/{job_id}/cancel"): SUBMIT,
    ("GET", "/records/{key}"): READ,
    ("GET", "/records/{key}/nests"): READ,
    ("GET", "/records/{key}/assembly"): READ,
    ("GET", "/records/{key}/roofline"): READ,
    ("GET", "/compare"): READ,
    ("GET", "/workloads"): READ,
    ("GET", "/fleet"): READ,
    ("GET", "/fleet/machines"): READ,
}


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """The result of a search in the table of rules."""

    rule: Rule | None
    """The rule of the request, or None if its path or method is not listed."""
    methods: tuple[str, ...]
    """Without a rule: the methods that are listed for the path."""
    parameters: dict[str, Any]
    """The parameters in the path."""


class Rules:
    """The table with a lookup by path. HEAD has the rule of GET."""

    def __init__(self, table: dict[tuple[str, str], Rule]) -> None:
        self._fixed: dict[str, dict[str, Rule]] = {}
        patterns: dict[str, dict[str, Rule]] = {}
        for (method, path), rule in table.items():
            (patterns if "{" in path else self._fixed).setdefault(path, {})[method] = rule
        self._patterns: list[tuple[Pattern[str], dict[str, Rule]]] = [
            (compile_path(path)[0], methods)
            for path, methods in sorted(patterns.items(), key=lambda item: -_literal(item[0]))
        ]

    def find(self, method: str, path: str) -> RouteMatch:
        """Return the rule of the most literal path pattern that lists `method`."""
        if method == "HEAD":
            method = "GET"
        methods: list[str] = []
        if (fixed := self._fixed.get(path)) is not None:
            if method in fixed:
                return RouteMatch(fixed[method], (), {})
            methods += fixed
        for pattern, listed in self._patterns:
            match = pattern.match(path)
            if match is None:
                continue
            if method in listed:
                return RouteMatch(listed[method], (), match.groupdict())
            methods += listed
        return RouteMatch(None, _allowed(methods), {})


def _literal(path: str) -> int:
    """Return the number of literal characters in a path pattern."""
    return len("".join(part.rpartition("}")[2] for part in path.split("{")))


def _allowed(methods: list[str]) -> tuple[str, ...]:
    if not methods:
        return ()
    more = ["OPTIONS", *(["HEAD"] if "GET" in methods else [])]
    return tuple(sorted({*methods, *more}))
