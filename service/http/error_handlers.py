"""Error responses: a problem document, or a page if the request accepts HTML."""

from __future__ import annotations

import json
from dataclasses import replace

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from tilewright.schedules.errors import TilewrightError
from tilewright.service.errors import (
    BadRequest,
    ExitCode,
    InvalidField,
    MethodNotAllowed,
    NotFound,
    TooBusy,
)
from tilewright.service.http.pages.error_pages import problem_page, wants_page
from tilewright.service.http.schemas import MEDIA_TYPE
from tilewright.service.logs import redacted
from tilewright.service.problems import ProblemDetails, problem_of


def problem_response(
    problem: ProblemDetails, request: Request, headers: dict[str, str] | None = None
) -> Response:
    """Return the response for a problem: a page if the request accepts HTML, else a problem
    document."""
    request.state.problem_code = problem.code
    if wants_page(request):
        hidden = replace(problem, detail=redacted(problem.detail))
        return problem_page(hidden, request, headers)
    request_id = str(getattr(request.state, "request_id", ""))
    document = problem.to_json(instance=request.scope["path"], request_id=request_id)
    # The detail may quote the request, and proxies log responses, so keys are removed.
    shown = json.loads(redacted(json.dumps(document)))
    return JSONResponse(
        shown,
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers={"Cache-Control": "no-store", "Vary": "Accept", **(headers or {})},
    )


def refusal(error: TilewrightError, request: Request) -> Response:
    """Return the response for an error of Tilewright, with the headers of its status."""
    problem = problem_of(error)
    headers = {}
    match problem.status:
        case 401:
            headers["WWW-Authenticate"] = 'Bearer realm="tilewright"'
        case 403 if problem.code == "low_scope":
            headers["WWW-Authenticate"] = 'Bearer error="insufficient_scope"'
        case 405 if isinstance(error, MethodNotAllowed) and error.allow:
            headers["Allow"] = ", ".join(error.allow)
        case 408 | 413:
            headers["Connection"] = "close"  # the rest of the body is not read
        case 429 | 503:
            secs = error.retry_after_secs if isinstance(error, TooBusy) else 5
            headers["Retry-After"] = str(secs)
    return problem_response(problem, request, headers)


def install(app: FastAPI) -> None:
    """Respond to every error of Tilewright, FastAPI and Starlette with a problem document."""

    @app.exception_handler(TilewrightError)
    def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, TilewrightError)
        if problem_of(error).exit_code is ExitCode.DATABASE:
            request.app.state.service.metrics.store_error()
        return refusal(error, request)

    @app.exception_handler(Exception)
    def bug(request: Request, error: Exception) -> Response:
        # Starlette raises the error again after this response, which logs its traceback.
        return problem_response(
            ProblemDetails(
                status=500,
                code="internal_error",
                title="A bug of the service",
                detail=f"{type(error).__name__}: the service's log has the details",
                advice="Report it with the request_id; the same request will fail again.",
                exit_code=ExitCode.FAILED,
            ),
            request,
        )

    @app.exception_handler(RequestValidationError)
    def parameters(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where, *rest = [str(part) for part in first["loc"]]
        name = ".".join(rest) or where
        found = InvalidField(
            f"{where} parameter {name}: {first['msg'][:1].lower()}{first['msg'][1:]},"
            f" got {str(first.get('input'))[:80]!r}",
            code="bad_parameter",
        )
        return problem_response(problem_of(found), request)

    @app.exception_handler(HTTPException)
    def starlette(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        found: TilewrightError
        match error.status_code:
            case 404:
                found = NotFound(
                    f"there is nothing at {request.url.path[:200]}",
                    advice="`/openapi.json` lists every route.",
                )
            case 405:
                found = MethodNotAllowed(f"{request.url.path[:200]} has no {request.method}")
            case _:
                found = BadRequest(str(error.detail))
        return problem_response(problem_of(found), request, dict(error.headers or {}))
