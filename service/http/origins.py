"""Host names of a service, and origins of pages that may call it.

A browser sends requests to any address that a page names. Two headers, written by the browser,
identify the page: `Host` shows if a page has pointed its own name at this address, and
`Sec-Fetch-Site` or `Origin` shows the origin of the page.
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
    """The host names of a service: the `listed` ones, IP addresses (with `local_only`, only
    loopback addresses), and with `any_name` all others. A request for an IP address is safe,
    because an attacker can point only a name at this machine."""

    listed: frozenset[str]
    local_only: bool
    any_name: bool

    def admit(self, host: str) -> bool:
        """Return whether `host` (with or without a port) is a name of this service."""
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
    """Return the host names of a service with these settings."""
    listed = {"localhost", *(name.strip("[]").lower() for name in settings.allow_host)}
    if not settings.loopback:
        listed |= {settings.host.lower(), socket.gethostname().lower()}
    # If every request needs a key, a page under another name gains nothing without a key.
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
    """Return the origin of the foreign page that sends the request, or None if no foreign page
    sends it. If a user follows a link on a foreign page, the request is not the page's."""
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
    """Return whether an origin and `host` are the same. The scheme only determines the default
    port, because a proxy may have removed TLS."""
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
