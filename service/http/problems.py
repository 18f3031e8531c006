"""Errors over HTTP, as the API describes them: `application/problem+json` for every one."""

from __future__ import annotations

from typing import Any

from tilewright.service.http.schemas import ProblemOut, schema_ref

MEDIA_TYPE = "application/problem+json"
DESCRIPTIONS = {
    400: "The request cannot be read.",
    401: "No key, or one that is not valid (any more): `code` says which.",
    403: "The key has not the scope, or a page of another origin asks.",
    404: "No such thing, or no answer good enough.",
    408: "The body did not arrive in time.",
    409: "Contradicts the state of things.",
    413: "Larger than `/limits` allows.",
    415: "Not of the media type this takes, or compressed.",
    422: "Read, but something in it will not do.",
    429: "Too many at once; `Retry-After` says when to come back.",
    503: "The database, or the fleet, cannot be used at the moment.",
    507: "The database has reached the size it may have.",
}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors a route can answer with, for OpenAPI."""
    return {
        status: {
            "description": DESCRIPTIONS[status],
            "content": {MEDIA_TYPE: {"schema": schema_ref(ProblemOut)}},
        }
        for status in statuses
    }
