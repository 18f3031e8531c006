"""Every time limit of the tuner: deadlines, longest waits, polling intervals and maximum ages.

Code reads a limit as `timeouts.NAME` when it needs the limit, so that a test can change it for all
users. Durations of measurements are not limits; they are defined next to the measurements.
"""

from __future__ import annotations

# -- runs

RUN_GRACE_SECS = 1.0
"""Time that a run may continue after its time budget, before it is killed."""

REFERENCE_SECS = 4.0
"""Time limit of the reference of one full check on one core, as predicted from counts."""

MAX_REFERENCE_SECS = 120.0
"""Wall-time limit of the reference in a run without a time budget, far above its predicted time."""

MAX_FULL_CHECK_SECS = 120.0
"""Wall-time limit of a full check without a time budget, or ten times its predicted time if longer.
"""

FIRST_RUN_DEADLINE_SECS = 10.0
"""Least deadline of a candidate before the speed of any kernel is known."""

RUN_DEADLINE_SECS = 5.0
"""Least deadline of a candidate when a kernel's speed is known: a busy machine may stall for
seconds."""

MIN_OVERRUN_SECS = 0.5
"""Least part of the reserve for a candidate that runs when the reserve begins."""

MEASURE_POLL_SECS = 0.1
"""Interval at which a measurement checks whether it was aborted or other runs need the machine."""

# -- compiling

COMPILE_DEADLINE_SECS = 30.0
"""LLVM's time limit for one candidate, and for a kernel or default schedule of a waiting caller."""

COMPILE_POLL_SECS = 0.1
"""Interval at which the pool checks the deadlines of its workers."""

HELPER_START_SECS = 20.0
"""Addition to a deadline if a helper process must first start and import modules."""

LLVM_NAMES_DEADLINE_SECS = 20.0
"""LLVM's time limit for listing the names of an architecture, or for compiling with new names."""

# -- the machine's lock and its probes

LOCK_POLL_SECS = 0.05
"""Interval between attempts to acquire the machine's lock."""

LOCK_REPORT_SECS = 1.0
"""Shortest wait for the lock that is reported."""

MIN_PROBING_SECS = 2.0
"""Time that probing takes on a quiet machine, imports included. With less, probing does not start.
"""

PROBING_DEADLINE_SECS = 60.0
"""Time limit of the process that probes, thirty times its time on a quiet machine."""

PROBING_LOCK_WAIT_SECS = 10.0
"""Longest wait of probing for the machine's lock, because its holder may wait for the probes."""

COMFORTABLE_PROBING_SECS = 10.0
"""With less time for probing, a run uses probes of an earlier day instead."""

MAX_PROBE_AGE_SECS = 7 * 86400.0
"""Maximum age of probes: firmware, kernel and neighbours change."""

MAX_DOUBTFUL_PROBE_AGE_SECS = 60.0
"""Maximum age of probes of a busy machine: only the commands of one minute share them."""

MAX_DISPROVED_PROBE_AGE_SECS = 60.0
"""Maximum age of probes that are not repeated when a kernel is faster than the bound."""

MAX_TRUSTED_PROBE_AGE_SECS = 3600.0
"""Maximum age of probes that may end a search at the bound, because clocks drift between hours."""

# -- the checker

QUIET_WAIT_SECS = 1.5
"""Total time that one candidate may wait for other processes to leave its cores."""

QUIET_POLL_SECS = 0.02
"""Interval at which a waiting candidate checks its cores."""

CHILD_POLL_SECS = 0.005
"""Interval at which the runner checks its child."""

CONCURRENT_START_SECS = 0.1
"""Longest wait for the second caller's thread to start; then the check continues without it."""

# Processor time that a check may spend on repeating one kernel under other conditions.

ALIGNMENT_CHECK_SECS = 0.03
"""Repeats with arrays at other offsets in a cache line."""

TEAM_SIZE_CHECK_SECS = 0.1
"""Repeats with other numbers of threads."""

REPEATED_CALL_CHECK_SECS = 0.2
"""Repeats on the same memory."""

# -- the fleet

FLEET_WAIT_SECS = 600.0
"""Time that a job waits for a scheduler, or for a machine of its kind, before it fails."""

FLEET_CONNECT_SECS = 5.0
"""Longest wait for a scheduler to accept a connection."""

FLEET_CALL_SECS = 10.0
"""Longest wait for a scheduler's answer."""

FLEET_RETRY_SECS = 0.25
"""Pause before a job queries the list of machines again."""

FLEET_POLL_SECS = 0.5
"""Interval at which the list of machines is read, if the scheduler announces no change earlier."""

ABORT_POLL_SECS = 0.1
"""Interval at which a call to the scheduler checks whether the run was aborted."""

FIRST_REPORT_SECS = 2.0
"""Shortest wait for machines that is reported."""

REPORT_SECS = 30.0
"""Interval at which a longer wait is reported again."""

SILENT_SECS = 8.0
"""A machine without a heartbeat for this time gets no requests; other machines get its requests."""

HEARTBEAT_GAP_SECS = 2.0
"""If a coordinator did not read heartbeats for this time, it treats no more machines as silent."""

HOST_IDLE_SECS = 60.0
"""A machine closes measurers that were not used for this time."""

REQUEST_POLL_SECS = 0.25
"""Interval at which a machine checks whether its request was cancelled."""

PARENT_POLL_SECS = 0.25
"""Interval at which a fleet process checks whether its parent process still exists."""

LEAVE_SECS = 2.0
"""A worker that closes ends after this time, even while it measures."""

WAKE_REACTION_SECS = 0.2
"""A batch that was woken for a free place blocks other batches at most for this time."""
