"""What a form sent: read within a limit, and only from our own pages."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends, Request

from service.errors import BadRequest, TooLarge, UnsupportedMedia
from service.http.deps import state_of

MEDIA_TYPE = "application/x-www-form-urlencoded"
MOST_FIELDS = 40

Fields = dict[str, str]


async def read_form(request: Request) -> Fields:
    """The fields of a form, each once. TooLarge, UnsupportedMedia; BadRequest for one that a page
    of another origin sent."""
    refuse_other_origins(request)
    media = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media not in (MEDIA_TYPE, ""):  # a form without fields may say nothing
        raise UnsupportedMedia(f"Content-Type is {media[:60] or 'missing'!r}: send {MEDIA_TYPE}")
    limit = state_of(request).limits.body_bytes
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > limit:
            raise TooLarge(f"the form is larger than {limit} bytes")
    try:
        pairs = parse_qsl(
            data.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"
        )
    except ValueError as error:
        raise BadRequest(f"the form cannot be read: {error}") from error
    return {name: value.strip() for name, value in pairs}


Form = Annotated[Fields, Depends(read_form)]


def refuse_other_origins(request: Request) -> None:
    """BadRequest "other_origin" for a request that a page of another origin made.

    Every browser in use says where a form comes from; what says nothing is no browser, and holds
    no cookie of anybody.
    """
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    ours = origin is None or urlsplit(origin).netloc == request.headers.get("host", "")
    if site not in ("same-origin", "none") or not ours:
        raise BadRequest(
            f"a page of {origin or 'another origin'} may change nothing here",
            code="other_origin",
            advice="Open the service's own page.",
        )
