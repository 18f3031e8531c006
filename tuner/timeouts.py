"""Every time limit of the tuner: deadlines, longest waits, polling intervals and oldest ages.

Always read as `timeouts.NAME`, so that a test can change a limit for all its users. Durations of
measurements are not limits; they are in the modules that measure.
"""

from __future__ import annotations

# -- runs

RUN_GRACE_SECS = 1.0
"""Time to finish after the seconds of a run have ended, before the run is killed."""

REFERENCE_SECS = 4.0
"""Time of one full check's reference on one core, as predicted from counts."""

MAX_REFERENCE_SECS = 120.0
"""Wall time of the reference in a run without seconds; its predicted time is far less."""

MAX_FULL_CHECK_SECS = 120.0
"""Wall time of a full check in a run without seconds, or ten times its predicted time if that is
more."""

FIRST_RUN_DEADLINE_SECS = 10.0
"""Least deadline of a candidate while no time of a kernel is known."""

RUN_DEADLINE_SECS = 5.0
"""Least deadline of a candidate once a fast one is known: a busy machine may stall for seconds."""

MIN_OVERRUN_SECS = 0.5
"""The part of the reserve that a candidate which runs at its begin may always use."""

MEASURE_POLL_SECS = 0.1
"""Interval at which a measurement checks whether it was aborted, or others want the machine."""

# -- compiling

COMPILE_DEADLINE_SECS = 30.0
"""LLVM's time for one candidate, a default, or a kernel that a caller waits for."""

COMPILE_POLL_SECS = 0.1
"""Interval at which the pool checks the deadlines of its workers."""

HELPER_START_SECS = 20.0
"""Added to a deadline if a helper process must start and import first, on a busy machine."""

LLVM_NAMES_DEADLINE_SECS = 20.0
"""LLVM's time to list its names of an architecture; some names make it hang or crash."""

# -- the machine's lock and its probes

LOCK_POLL_SECS = 0.05
"""Interval at which the machine's lock is tried."""

LOCK_REPORT_SECS = 1.0
"""Shorter waits for the lock are not reported."""

MIN_PROBING_SECS = 2.0
"""Time of probing on a quiet machine including imports; with less time left it does not start."""

PROBING_DEADLINE_SECS = 60.0
"""Time of the probing process; a quiet machine needs a thirtieth of it."""

PROBING_LOCK_WAIT_SECS = 10.0
"""Longest wait of probing for the machine's lock, whose holder may wait for the probes."""

COMFORTABLE_PROBING_SECS = 10.0
"""With less time left, a run uses probes of an earlier day."""

MAX_PROBE_AGE_SECS = 7 * 86400.0
"""Older probes are repeated, because firmware, kernel and neighbours change."""

MAX_DOUBTFUL_PROBE_AGE_SECS = 60.0
"""Probes of a busy machine are used for one minute."""

MAX_DISPROVED_PROBE_AGE_SECS = 60.0
"""Younger probes are not repeated when a kernel beats the bound."""

MAX_TRUSTED_PROBE_AGE_SECS = 3600.0
"""Older probes are repeated before a search ends at the bound, because clocks drift."""

# -- the checker

QUIET_WAIT_SECS = 1.5
"""Total time that one candidate waits for other programs to leave its cores."""

QUIET_POLL_SECS = 0.02
"""Interval at which a waiting candidate checks its cores."""

CHILD_POLL_SECS = 0.005
"""Interval at which the runner checks its child."""

CONCURRENT_START_SECS = 0.1
"""Longest wait for the second caller's thread; on a busier machine that check is omitted."""

# Processor time that a check may spend on repeating one kernel under other circumstances.

ALIGNMENT_CHECK_SECS = 0.03
"""Repeats with arrays at other offsets in a cache line."""

TEAM_SIZE_CHECK_SECS = 0.1
"""Repeats with other numbers of threads."""

REPEATED_CALL_CHECK_SECS = 0.2
"""Repeated calls on the same memory."""

# -- the fleet

FLEET_WAIT_SECS = 600.0
"""Longest wait of a job for a scheduler or a suitable machine, before it fails."""

FLEET_CONNECT_SECS = 5.0
"""Longest wait for a scheduler to accept a connection."""

FLEET_CALL_SECS = 10.0
"""Longest wait for a scheduler's answer."""

FLEET_RETRY_SECS = 0.25
"""Pause before a job looks for machines again."""

FLEET_POLL_SECS = 0.5
"""Interval at which the list of machines is read; sooner if the scheduler announces a change."""

ABORT_POLL_SECS = 0.1
"""Interval at which a call to the scheduler checks whether the run was aborted."""

FIRST_REPORT_SECS = 2.0
"""Shorter waits for machines are not reported."""

REPORT_SECS = 30.0
"""Interval at which a longer wait is reported again."""

SILENT_SECS = 8.0
"""Time without a heartbeat after which a machine gets no orders and its orders go to others."""

HEARTBEAT_GAP_SECS = 2.0
"""A coordinator that did not read heartbeats for this long cannot tell which machine was silent."""

HOST_IDLE_SECS = 60.0
"""Time without use after which a machine closes a measurer."""

ORDER_POLL_SECS = 0.25
"""Interval at which a machine checks whether its order is still wanted."""

PARENT_POLL_SECS = 0.25
"""Interval at which a fleet process checks whether its parent is alive."""

LEAVE_SECS = 2.0
"""Time after which a closing worker ends even if it measures, as no one receives the result."""

WAKE_REACTION_SECS = 0.2
"""Time for a notified batch to take a free place, before others may take it."""
