"""Static files of the dashboard, served from memory. Their URLs contain a digest, so that a browser
may cache them permanently."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response

from tilewright.service.errors import NotFound

FOLDER = Path(__file__).parent / "static"
MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
FOR_EVER = "public, max-age=31536000, immutable"
DIGITS = 12

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Asset:
    """A served file. `digest` is the beginning of its SHA-256."""

    name: str
    media_type: str
    data: bytes
    digest: str

    @property
    def url(self) -> str:
        return f"/static/{self.name}?v={self.digest}"


@cache
def assets() -> dict[str, Asset]:
    found: dict[str, Asset] = {}
    for path in sorted(FOLDER.iterdir()):
        media_type = MEDIA_TYPES.get(path.suffix)
        if media_type is not None:
            data = path.read_bytes()
            digest = hashlib.sha256(data).hexdigest()[:DIGITS]
            found[path.name] = Asset(path.name, media_type, data, digest)
    return found


def asset_url(name: str) -> str:
    """Return the URL of a file of `static/`. Raise KeyError if it does not exist."""
    return assets()[name].url


@router.api_route("/static/{name}", methods=["GET", "HEAD"])
def static(request: Request, name: str, v: str = "") -> Response:
    """One file. It needs no key, because it contains no stored data."""
    asset = assets().get(name)
    if asset is None:
        raise NotFound(f"there is nothing at {request.url.path[:200]}")
    headers = {
        "Cache-Control": FOR_EVER if v == asset.digest else "no-cache",
        "ETag": f'"{asset.digest}"',
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(asset.data, media_type=asset.media_type, headers=headers)
