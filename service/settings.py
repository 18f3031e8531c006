"""Settings of the service, read once: from flags, then `TILEWRIGHT_*`, then the defaults here."""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tilewright.service.limits import RequestLimits


def _split(value: object) -> object:
    """Split a list of names in an environment variable at commas and spaces."""
    return tuple(filter(None, re.split(r"[,\s]+", value))) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]


class Settings(BaseSettings):
    """Settings of `serve`. `db` is "" for `TILEWRIGHT_DB`, or else the user's default database."""

    model_config = SettingsConfigDict(env_prefix="TILEWRIGHT_", frozen=True, extra="ignore")

    host: str = "127.0.0.1"
    port: int = Field(default=8470, ge=0, le=65535)
    db: str = ""
    workers: bool = True
    measurer_folder: Path | None = None
    default_measurer: str = "local"
    allow_unauthenticated: bool = False
    require_keys: bool | None = None
    """Whether requests need a key. None: on loopback only if a key exists, otherwise always."""
    allow_host: Names = ()
    allow_origin: Names = ()
    trusted_proxy: Names = ()
    fleet: str = ""
    fleet_machine: bool = True
    fleet_unprotected: bool = False
    json_log: bool = False
    lease_secs: float = Field(default=5.0, gt=0)
    poll_secs: float = Field(default=0.5, gt=0)
    heartbeat_secs: float = Field(default=15.0, gt=0)
    drain_secs: float = Field(default=10.0, ge=0)
    jobs_at_once: int = Field(default=3, ge=1, le=64)
    store_secs: float = Field(default=4.0, gt=0)
    database_bytes: int = Field(default=0, ge=0)
    """Size at which the database accepts no new work; 0 for no limit."""
    preparers: int | None = Field(default=None, ge=0, le=64)
    workload_bytes: int = Field(default=8 << 30, gt=0)
    workload_iterations: int = Field(default=1 << 42, gt=0)
    limits: RequestLimits = RequestLimits()

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Return whether `host` is a loopback address. Names other than localhost do not count."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
