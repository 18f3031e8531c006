"""Have this machine probed, while nothing of ours is measured on it.

Its back end names the program that does it (`Backend.prober`): target JSON on stdin, probes JSON on
stdout, in a process of its own, which may start what a process that forks must not.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from tilewright.schedules.errors import TargetError
from tilewright.schedules.target import Probes, Target

from ..backend.registry import backend_for
from ..process.child_command import module_command
from ..process.control import Control
from ..process.environment import clean_environment, openmp_environment
from .machine_lock import machine_lock
from .probe_merging import LEAST_SECS, ProbingLateError

PROCESS_DEADLINE_SECS = 60.0
LOCK_PATIENCE_SECS = 10.0
"""Whoever holds the machine's lock for longer is not waited for: he may be waiting for us."""


def probe_target(
    target: Target, within_secs: float = math.inf, control: Control | None = None
) -> Probes:
    """Probe this machine, which must be the one `target` describes, in a process of its own.

    Nothing of ours is measured meanwhile; where that cannot be had, the probes are doubtful.
    TargetError if that process fails, with the last line it wrote, or if it all takes longer than
    `within_secs`. MeasurementAborted by `control`.
    """
    control = control or Control()
    end = time.monotonic() + within_secs
    patience_secs = min(LOCK_PATIENCE_SECS, max(within_secs - LEAST_SECS, 0.0))
    with machine_lock(patience_secs=patience_secs, on_wait=lambda _: control.check()) as alone:
        deadline_secs = min(PROCESS_DEADLINE_SECS, end - time.monotonic())
        probes = _probe_now(target, deadline_secs, control)
    return probes if alone else replace(probes, doubtful=True)


def _probe_now(target: Target, deadline_secs: float, control: Control) -> Probes:
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    # Regions cost what they cost where kernels are timed: each thread on a core of its own.
    places = openmp_environment(target.cores)
    clean = clean_environment(os.environ, target.cores)
    environment = {**clean, **places, "PYTHONPATH": os.pathsep.join(paths)}
    with subprocess.Popen(
        module_command(backend_for(target).prober),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            with control.killing(process.kill):
                found, said = process.communicate(json.dumps(target.to_json()), deadline_secs)
        except subprocess.TimeoutExpired as error:
            raise ProbingLateError(
                f"probing {target.cpu} took longer than {deadline_secs:.0f} s and was stopped"
            ) from error
        finally:
            process.kill()  # nothing, where it has ended
    if process.returncode != 0:
        last = (said.strip().splitlines() or ["no message"])[-1]
        raise TargetError(f"probing {target.cpu} failed with status {process.returncode}: {last}")
    return Probes(**json.loads(found))
