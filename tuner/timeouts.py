"""Every time limit of the tuner: deadlines, longest waits, polling intervals and oldest ages.

Read as `timeouts.NAME` when it is needed, so that a test changes one limit for all of them. How
long something is measured is no limit: those durations stand with what they measure.
"""

from __future__ import annotations

# -- runs

RUN_GRACE_SECS = 1.0
"""What a run may still finish after its seconds are over, before it is killed."""

REFERENCE_SECS = 4.0
"""What the reference of one full check may take on one core, as predicted from counts."""

MAX_REFERENCE_SECS = 120.0
"""Wall time of the reference where the run has no seconds: it was predicted to take far less."""

MAX_FULL_CHECK_SECS = 120.0
"""Wall time of a full check where the run has no seconds, or ten times what was predicted."""

FIRST_RUN_DEADLINE_SECS = 10.0
"""Least deadline of a candidate while nothing is known of how fast kernels are."""

RUN_DEADLINE_SECS = 5.0
"""Least deadline of a candidate once a fast one is known: a busy machine may stall for seconds."""

MIN_OVERRUN_SECS = 0.5
"""What a candidate that runs when the reserve begins may at least take of it."""

MEASURE_POLL_SECS = 0.1
"""How often a measurement looks whether it was aborted, or others want the machine."""

# -- compiling

COMPILE_DEADLINE_SECS = 30.0
"""LLVM's time for one candidate, and for a default or a kernel that somebody waits for."""

COMPILE_POLL_SECS = 0.1
"""How often the pool looks after deadlines of its workers."""

HELPER_START_SECS = 20.0
"""Added to a deadline where a helper process has to start and import first, on a busy machine."""

LLVM_NAMES_DEADLINE_SECS = 20.0
"""LLVM's time to list the names it knows of an architecture, or to end by one of them."""

# -- the machine's lock and its probes

LOCK_POLL_SECS = 0.05
"""How often the machine's lock is tried."""

LOCK_REPORT_SECS = 1.0
"""A wait for the lock that is shorter is not reported."""

MIN_PROBING_SECS = 2.0
"""What probing takes on a quiet machine, imports included: with less to spare it is not begun."""

PROBING_DEADLINE_SECS = 60.0
"""Time of the process that probes; a quiet machine needs a thirtieth of it."""

PROBING_LOCK_WAIT_SECS = 10.0
"""Probing waits no longer for the machine's lock: its holder may be waiting for the probes."""

COMFORTABLE_PROBING_SECS = 10.0
"""With less to spare, probes of an earlier day serve a run as well."""

MAX_PROBE_AGE_SECS = 7 * 86400.0
"""Older probes are taken again: firmware, kernel and neighbours change."""

MAX_DOUBTFUL_PROBE_AGE_SECS = 60.0
"""Probes of a busy machine serve the commands of one minute."""

MAX_DISPROVED_PROBE_AGE_SECS = 60.0
"""Probes of the last minute are not taken again when a kernel beats the bound."""

MAX_TRUSTED_PROBE_AGE_SECS = 3600.0
"""Older probes are taken again before a search ends at the bound: clocks drift between hours."""

# -- the checker

QUIET_WAIT_SECS = 1.5
"""What one candidate may wait in all for others to leave its cores."""

QUIET_POLL_SECS = 0.02
"""How often a candidate that waits looks at its cores."""

CHILD_POLL_SECS = 0.005
"""How often the runner looks after its child."""

CONCURRENT_START_SECS = 0.1
"""Longest wait for the second caller's thread: on a busier machine that check is left out."""

# Processor time that a check may spend on repeating one kernel under other circumstances.

ALIGNMENT_CHECK_SECS = 0.03
"""Arrays at other places of a cache line."""

TEAM_SIZE_CHECK_SECS = 0.1
"""Other numbers of threads."""

REPEATED_CALL_CHECK_SECS = 0.2
"""Calls again on the same memory."""

# -- the fleet

FLEET_WAIT_SECS = 600.0
"""How long a job waits for a scheduler, or a machine of its kind, before it ends with an error."""

FLEET_CONNECT_SECS = 5.0
"""Longest wait for a scheduler to take a connection."""

FLEET_CALL_SECS = 10.0
"""Longest wait for a scheduler's answer."""

FLEET_RETRY_SECS = 0.25
"""Pause before a job looks for machines again."""

FLEET_POLL_SECS = 0.5
"""How often the list of machines is read; sooner if the scheduler announces a change."""

ABORT_POLL_SECS = 0.1
"""How often a call to the scheduler looks whether the run was aborted."""

FIRST_REPORT_SECS = 2.0
"""A wait for machines that is shorter is not reported."""

REPORT_SECS = 30.0
"""How often a longer wait is reported again."""

SILENT_SECS = 8.0
"""A machine without a heartbeat for so long gets no orders, and its orders go to others."""

HEARTBEAT_GAP_SECS = 2.0
"""A coordinator that did not look for so long cannot say who was silent meanwhile."""

HOST_IDLE_SECS = 60.0
"""A machine closes measurers that nobody used for so long."""

ORDER_POLL_SECS = 0.25
"""How often a machine looks whether its order is still wanted."""

PARENT_POLL_SECS = 0.25
"""How often a fleet process looks whether the process that keeps it is there."""

LEAVE_SECS = 2.0
"""A worker that closes ends after so long, whatever it still measures: nobody hears of it."""

WAKE_REACTION_SECS = 0.2
"""A batch that was told of a free place and did not take it by then keeps nobody from it."""
