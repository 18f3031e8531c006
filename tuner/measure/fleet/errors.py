"""What can be wrong with a fleet."""

from __future__ import annotations

from tilewright.tuner.measure.protocol import MeasurerError


class FleetError(MeasurerError):
    """No scheduler answers, no machine of the kind has joined, or it speaks another version."""
