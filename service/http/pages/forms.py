"""Parses forms within a size limit. `middleware.OriginFilter` rejects forms of other origins."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from tilewright.service.errors import BadRequest, TooLarge, UnsupportedMedia
from tilewright.service.http.deps import state_of

MEDIA_TYPE = "application/x-www-form-urlencoded"
MOST_FIELDS = 40

Fields = dict[str, str]


async def read_form(request: Request) -> Fields:
    """Return the fields of a form. Raise BadRequest, TooLarge or UnsupportedMedia."""
    media = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media not in (MEDIA_TYPE, ""):  # a form without fields may have no type
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
