"""Checks before the service listens on an address."""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import TYPE_CHECKING

from tilewright.service.errors import CannotServe

if TYPE_CHECKING:
    from tilewright.db import Store
    from tilewright.service.settings import Settings

_ORIGIN = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?", re.ASCII)


def keys_required(settings: Settings) -> bool | None:
    """Return whether requests need a key, or None if they need one as soon as the first key was
    created."""
    if settings.require_keys is not None:
        return settings.require_keys
    if settings.loopback or settings.allow_unauthenticated:
        return None
    return True


def check_exposure(settings: Settings, store: Store) -> None:
    """Raise CannotServe if other machines could submit jobs without a key. Also raise it if a name,
    an origin or a network is invalid."""
    _check_names(settings)
    if settings.loopback or settings.allow_unauthenticated:
        return
    if settings.require_keys is False:
        raise CannotServe(
            f"--host {settings.host} can be reached from other machines, and with "
            "--no-require-keys anybody could submit jobs",
            advice="Omit --no-require-keys, or accept the risk with --allow-unauthenticated.",
        )
    if not store.keys().by_id:
        raise CannotServe(
            f"--host {settings.host} can be reached from other machines, and there is no key yet: "
            "nobody could use the service",
            advice="Create a key with `tilewright keys create`, or use --allow-unauthenticated to "
            "let anybody submit jobs.",
        )


def _check_names(settings: Settings) -> None:
    for origin in settings.allow_origin:
        if not is_origin(origin):
            raise CannotServe(
                f"--allow-origin {origin}: not an origin",
                advice="Give scheme and host, such as https://ci.example.org; it is not possible "
                "to allow all origins.",
            )
    for network in settings.trusted_proxy:
        try:
            ip_network(network, strict=False)
        except ValueError as error:
            raise CannotServe(
                f"--trusted-proxy {network}: {error}",
                advice="Give an address (127.0.0.1) or a network (10.0.0.0/8).",
            ) from error


def is_origin(text: str) -> bool:
    """Return whether `text` is an origin in a browser's format: only scheme, host and port."""
    return _ORIGIN.fullmatch(text) is not None
