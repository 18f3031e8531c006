"""The learned model that a target uses, without SQLAlchemy."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import Any

from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.related import StoredModel
from tilewright.schedules.target import Target

from ..core.hashes import MODEL, TARGET, is_intact
from .family import is_of_family, machine_name, vectors_differ
from .nearby import ALWAYS, Query

log = logging.getLogger("tilewright.db")

UNTRAINED: dict[str, Any] = {"untrained": True}
"""The document of a training from which no model resulted."""

UNTRAINED_KEY = "sha256:" + hashlib.sha256(canonical_bytes(UNTRAINED)).hexdigest()

_LEARNED = "timings = :timings AND created_at < :before AND key <> :untrained"

_OWN = f"SELECT * FROM model WHERE target_key = :target AND {_LEARNED} ORDER BY id DESC LIMIT 1"  # noqa: S608  # our own text

_OTHERS = (
    "SELECT target.*, newest.model_id AS model_id FROM target JOIN"  # noqa: S608  # our own text
    f" (SELECT target_key, max(id) AS model_id FROM model WHERE {_LEARNED} GROUP BY target_key)"
    " AS newest ON newest.target_key = target.key ORDER BY newest.model_id DESC"
)

_BY_KEY = "SELECT * FROM model WHERE target_key = :target AND id = :id"


def find_model(
    query: Query, target: Target, timings: str = "", before: str = ""
) -> StoredModel | None:
    """Return the newest model of a target, stored earlier than the time `before` (RFC 3339) if it
    is given, or None if it is damaged. Without any, return the newest intact model of a target of
    the same architecture and vectors, preferably of the same CPU, or None."""
    values = {"timings": timings, "before": before or ALWAYS, "untrained": UNTRAINED_KEY}
    for row in query(_OWN, {**values, "target": target.key}):
        return _model(row, "")
    others = []
    for row in query(_OTHERS, values):
        document = json.loads(row.document) if is_intact(row, TARGET) else {}
        if is_of_family(target, document) and not vectors_differ(target, document):
            others.append((document.get("cpu") != target.cpu, row, machine_name(target, document)))
    for _, row, machine in sorted(others, key=lambda one: one[0]):
        for found in query(_BY_KEY, {"target": row.key, "id": row.model_id}):
            if (model := _model(found, machine)) is not None:
                return model
    return None


def _model(row: Any, origin: str) -> StoredModel | None:
    if not is_intact(row, MODEL):
        log.warning("model %s is damaged and not used; run `tilewright db train`", row.key)
        return None
    return StoredModel(
        row.key, row.created_at, json.loads(row.document), json.loads(row.quality), origin
    )
