"""Who wants a job, as it is told to those who ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.service.access.keys import Principal

if TYPE_CHECKING:
    from tilewright.db.values.jobs import Sharing


def sharing_document(found: Sharing, asking: Principal) -> dict[str, Any]:
    """How many `owners` want a job, and whether who asks has `withdrawn`; `names` of the owners are
    for those alone who see the jobs of all."""
    return {
        "owners": len(found.asking),
        "withdrawn": asking.owner in found.withdrawn,
        "names": list(found.asking) if asking.jobs_of is None else None,
    }
