"""Probing of this machine while no other process of this project measures on it.

The program that probes (`Backend.prober`) runs in a separate process, because it may load
libraries, such as OpenMP, that a process that forks must not load.
"""

from __future__ import annotations

import json
import math
import subprocess
import time
from dataclasses import replace

from tilewright.schedules.errors import TargetError
from tilewright.schedules.target import Probes, Target

from .. import timeouts
from ..backend.registry import backend_for
from ..process.child_command import module_command
from ..process.control import Control
from ..process.environment import child_environment
from .machine_lock import machine_lock
from .probe_merging import ProbingLateError


def probe_target(
    target: Target, within_secs: float = math.inf, control: Control | None = None
) -> Probes:
    """Probe this machine, which `target` must describe, in a separate process.

    The probes are doubtful if another process held the machine's lock. Raise TargetError with the
    last line of the process's error output if the process fails or takes longer than `within_secs`.
    Raise MeasurementAborted if `control` aborts.
    """
    control = control or Control()
    end = time.monotonic() + within_secs
    patience_secs = min(
        timeouts.PROBING_LOCK_WAIT_SECS, max(within_secs - timeouts.MIN_PROBING_SECS, 0.0)
    )
    with machine_lock(patience_secs=patience_secs, on_wait=lambda _: control.check()) as alone:
        deadline_secs = min(timeouts.PROBING_DEADLINE_SECS, end - time.monotonic())
        probes = _probe_now(target, deadline_secs, control)
    return probes if alone else replace(probes, doubtful=True)


def _probe_now(target: Target, deadline_secs: float, control: Control) -> Probes:
    with subprocess.Popen(
        module_command(backend_for(target).prober),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(target.cores),
    ) as process:
        try:
            with control.killing(process.kill):
                found, errors = process.communicate(json.dumps(target.to_json()), deadline_secs)
        except subprocess.TimeoutExpired as error:
            raise ProbingLateError(
                f"probing {target.cpu} took longer than {deadline_secs:.0f} s and was stopped"
            ) from error
        finally:
            process.kill()  # no effect if it has ended
    if process.returncode != 0:
        last = (errors.strip().splitlines() or ["no message"])[-1]
        raise TargetError(f"probing {target.cpu} failed with status {process.returncode}: {last}")
    return Probes(**json.loads(found))
