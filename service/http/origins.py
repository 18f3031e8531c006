"""Host names of a service, and origins of pages that may call it.

A browser sends requests to any address that a page names. Two headers that the browser itself
writes reveal the page: `Host` (a page that points its own name at this address shows that name) and
`Sec-Fetch-Site`, or `Origin`, which name the page's origin.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from tilewright.service.access.exposure import keys_required
from tilewright.service.settings import Settings

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::(\d{1,5}))?", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}
SAFE = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class HostNames:
    """The host names of a service: the `listed` ones, IP addresses (with `local_only`, only this
    machine's), and with `any_name` all others.

    IP addresses are safe: only the owner of a name can point it to another machine.
    """

    listed: frozenset[str]
    local_only: bool
    any_name: bool

    def admit(self, host: str) -> bool:
        """Return whether a request for `host` (with or without a port) is for this service."""
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].strip("[]").rstrip(".").lower()
        if name in self.listed:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return self.any_name
        return address.is_loopback or not self.local_only


def host_names(settings: Settings) -> HostNames:
    """Return the host names under these settings."""
    listed = {"localhost", *(name.strip("[]").lower() for name in settings.allow_host)}
    if not settings.loopback:
        listed |= {settings.host.lower(), socket.gethostname().lower()}
    # If every request needs a key, a page under another name gains nothing: it has none.
    needs_keys = keys_required(settings) is True
    return HostNames(
        frozenset(listed),
        local_only=settings.loopback,
        any_name="*" in listed
        or (needs_keys and not settings.loopback and not settings.allow_host),
    )


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """Proxies whose `X-Forwarded-Host` is trusted: addresses and networks."""

    networks: tuple[str, ...]

    def trust(self, client: str) -> bool:
        try:
            address = ip_address(client)
        except ValueError:
            return False
        return any(address in ip_network(network, strict=False) for network in self.networks)


def host_of(headers: Headers, client: str, proxies: TrustedProxies) -> str:
    """Return the host name to which the client sent the request."""
    if proxies.networks and proxies.trust(client):
        forwarded = headers.get("x-forwarded-host")
        if forwarded:
            return forwarded.split(",")[0].strip()
    return headers.get("host", "")


def from_elsewhere(method: str, headers: Headers, host: str, allowed: frozenset[str]) -> str | None:
    """Return a description of the page of another origin that sends the request, or None if there
    is none.

    Following a link from another origin does not count as a request of a page; every other request
    of a page does.
    """
    origin = headers.get("origin")
    if origin is not None and origin in allowed:
        return None
    site = headers.get("sec-fetch-site")
    if site is not None:
        if site in ("same-origin", "none"):
            return None
        follows_a_link = (
            method in SAFE
            and headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest") == "document"
        )
        return None if follows_a_link else origin or "another site"
    if origin is None or _same(origin, host):
        return None
    return origin


def _same(origin: str, host: str) -> bool:
    """Return whether an origin and `host` are the same. A proxy may have removed TLS: the scheme
    only determines the default port."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    mine, theirs = _HOST.fullmatch(host), _HOST.fullmatch(parts.netloc)
    if mine is None or theirs is None or mine[1].lower() != theirs[1].lower():
        return False
    if parts.scheme not in _DEFAULT_PORTS:
        return False
    default = _DEFAULT_PORTS[parts.scheme]
    return int(theirs[2] or default) == int(mine[2] or default)
