"""A dashboard for Grafana and alert rules for Prometheus, for the metrics at `/metrics`."""

from __future__ import annotations

from pathlib import Path


def monitoring_dir() -> Path:
    """Return the folder of `grafana.json` and `alerts.yml`."""
    return Path(__file__).parent
