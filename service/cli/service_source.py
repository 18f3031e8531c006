"""A running service as a source of locked kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.service.answers.failed_checks import refuse_pins
from tilewright.service.build.lock_file import LockedKernel, LockFile, NotTheBytes
from tilewright.service.build.source import build_request
from tilewright.service.client import Client
from tilewright.service.errors import Refused

NOT_FOUND, NOT_ALLOWED = 404, 405


class ServiceSource:
    """A `tilewright.service.build.source.Builder` that uses a service over HTTP."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def build(self, request: dict[str, Any]) -> tuple[LockedKernel, dict[str, dict[str, Any]]]:
        document = self._client.build(request)
        return LockedKernel.from_json(document["kernel"]), dict(document["targets"])

    def refuse_failed(self, kernels: Sequence[LockedKernel]) -> None:
        try:
            refused = self._client.check_pins([kernel.to_json() for kernel in kernels])
        except Refused as error:
            if error.status not in (NOT_FOUND, NOT_ALLOWED):  # older services lack this route
                raise
            return
        refuse_pins((pin["name"], _check_text(pin["full_check"])) for pin in refused)

    def file(self, lock: LockFile, kernel: LockedKernel, name: str) -> bytes:
        ref = kernel.files[name]
        key = f"sha256:{ref.sha256}"
        try:
            return ref.check(self._client.blob(key), name)
        except Refused as error:
            if error.status != NOT_FOUND:
                raise
        self.build(build_request(lock, kernel, pinned=True))
        try:
            return ref.check(self._client.blob(key), name)
        except Refused as error:
            if error.status != NOT_FOUND:
                raise
            raise NotTheBytes(
                f"{name}: the service has no blob {key}, and a new build has other bytes"
            ) from error

    def record(self, key: str) -> dict[str, Any] | None:
        try:
            document = self._client.record(key)
        except Refused as error:
            if error.status != NOT_FOUND:
                raise
            return None
        return {name: value for name, value in document.items() if name not in ("key", "artefacts")}

    def target(self, key: str) -> dict[str, Any] | None:
        """Return None: targets are in the lock file, and a service does not serve them."""
        return None


def _check_text(check: dict[str, Any]) -> str:
    return f"{check['status']}: {check['detail']}" if check["detail"] else str(check["status"])
