"""What can be wrong with a fleet."""

from __future__ import annotations

from tilewright.schedules.errors import ErrorCategory
from tilewright.tuner.measure.protocol import MeasurerError


class FleetError(MeasurerError):
    """No scheduler answers, no machine of the kind has joined, or it speaks another version."""

    code = "fleet_unavailable"
    category = ErrorCategory.UNAVAILABLE
    title = "The fleet cannot measure"
    advice = (
        "`tilewright fleet ADDRESS` lists machines; `tilewright worker --join ADDRESS` adds one."
    )
