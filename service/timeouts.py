"""Every time limit and polling interval of the service, in seconds.

Modules read `timeouts.NAME` at each use, so that a test can replace a value. Operators can change
the values in `settings.py` and `limits.py`.
"""

from __future__ import annotations

# The client

CLIENT_CONNECT_SECS = 5.0
"""The time limit for connecting to a service. A running service accepts immediately."""
CLIENT_LAST_TRY_SECS = 0.05
"""The minimum time of an attempt that begins at the deadline of its call."""
CLIENT_PAUSE_MAX_SECS = 10.0
"""The longest pause between two attempts of a call; longer pauses would only delay its success."""
CLIENT_LONG_POLL_SECS = 30.0
"""The time for which a request of `Client.wait` lets the service wait: half of `wait_secs` in
`/limits`."""
CLIENT_OUTAGE_SECS = 120.0
"""A client that waits for a job tolerates an unreachable service for this long, as in a restart."""
CLIENT_STREAM_SILENCE_SECS = 60.0
"""The longest silence of an event stream. Its heartbeats are several times as frequent."""
CLIENT_BUILD_SECS = 120.0
"""The additional time for a call that compiles and verifies a kernel."""

# The command line

TERMINAL_CALL_SECS = 5.0
"""The time limit of a command's call to a service. A user waits at the terminal."""
PROGRESS_LINE_SECS = 2.0
"""The time between two progress lines in a log, unless there is a new best."""
ACTIVITY_LINE_SECS = 1.0
"""An activity is reported in a log after this time; shorter ones would flood the log."""
PROGRESS_POLL_SECS = 0.25
"""The interval at which the current activity is polled: a quarter of `ACTIVITY_LINE_SECS`."""
INTERRUPTED_STEP_SECS = 0.75
"""The time for which a step that stores no result may continue after Ctrl-C or SIGTERM: describing
the machine, a reference, a full check."""
INTERRUPTED_TUNE_SECS = 8.0
"""`tune` may check its best for this long after Ctrl-C or SIGTERM. Process managers usually send
SIGKILL ten seconds after SIGTERM."""
NOISE_MEASUREMENT_SECS = 0.4
"""`doctor` repeats a fixed computation for this long, at least 20 times on a slow core."""

# Requests

KEY_REVOCATION_SECS = 1.0
"""The keys are read again after this time, so a revoked key remains valid for at most this long."""
UNKNOWN_KEY_READ_SECS = 0.25
"""The shortest interval between two reads of all keys that unknown keys cause."""
KEYS_WITHOUT_DATABASE_SECS = 3600.0
"""Keys remain valid this long while the database cannot be read. Usually no process can create or
revoke keys in that time."""
KEY_READ_SECS = 2.0
"""The time limit of a read of the keys. Then the known keys are used."""
HEALTH_CHECK_SECS = 2.0
"""The time limit of a database check for `/readyz` and `/metrics`, whose clients wait a few
seconds."""
CONNECTION_WARNING_SECS = 60.0
"""The time between two equal warnings about connections, which any client can cause."""
EVENT_READER_SECS = 30.0
"""A reader of an event stream that accepts nothing for this long is disconnected."""
FEED_POLL_SECS, FEED_POLL_MAX_SECS = 0.25, 1.0
"""The intervals at which new events are polled, with few and with many followers."""
FEED_POLL_SECS_PER_FOLLOWER = 0.02
"""Sending an event to a follower takes 0.3 ms. So all followers take at most 1.5 % of a core, and
up to twelve followers get every event within a quarter of a second."""
FEED_STALE_SECS = 2.0
"""Every followed job is read this often even if no change is detected: on PostgreSQL, the events of
two jobs can become visible in another order than their ids."""
PREPARATION_POLL_SECS = 0.05
"""The interval at which changes are polled while requests wait for a preparation."""
PREPARATION_RECHECK_SECS = 1.0
"""Preparations are read, and preparers woken, this often even if no change is detected."""
PREPARATION_RETRY_MAX_SECS = 30
"""The longest `Retry-After` for an answer that is being prepared."""
SECS_PER_PREPARATION = 2.5
"""Typical time of a preparation, from which `Retry-After` is estimated."""
INSPECTION_SECS = 20.0
"""The time limit of a helper process for loops, assembly or a bound on a page."""
SESSION_COOKIE_SECS = 30 * 86_400
"""A browser stores the key of `/login` for 30 days."""

# Preparation of answers

PREPARER_IDLE_SECS = 60.0
"""A preparer without work ends after this long."""
PREPARER_POLL_SECS = 0.1
"""The interval at which changes in the database are polled."""
PREPARER_RECHECK_SECS = 2.0
"""A preparer polls for work this often even if no change is detected, because leases expire."""
PREPARER_STOP_SECS = 2.0
"""A preparer may take this long to stop after SIGTERM."""
PREPARER_RESTART_SECS, PREPARER_RESTART_MAX_SECS = 1.0, 60.0
"""The first and the longest pause before a failed preparer is replaced; it doubles each time."""
PREPARATION_STEP_SECS = 300.0
"""The time limit of one step, whose parts have shorter deadlines. Then its process exits."""
FAILED_PREPARATION_RETRY_SECS = 30.0
"""A failed preparation may be requested again after this time, multiplied by its failures."""

# Fleets

FLEET_STATUS_SECS = 2.0
"""The time limit for a fleet's scheduler to list its machines. A page waits for it."""
FLEET_STATUS_CACHE_SECS = 1.0
"""A list of machines is reused this long, to spare the scheduler."""
FLEET_SIZE_CACHE_SECS = 5.0
"""The number of machines is reused this long. It only limits how many jobs are open."""
FLEET_JOIN_SECS = 60
"""A machine without a scheduler exits after this time, and is restarted."""
FLEET_WORKER_POLL_SECS = 0.5
"""The interval at which a machine checks that it is still in the fleet."""
MACHINE_SILENT_SECS = 10.0
"""A machine without a heartbeat for this long is shown as silent."""
SCHEDULER_START_SECS = 20.0
"""The time limit for the start of the fleet's scheduler. Loading Dask takes some seconds."""
SCHEDULER_POLL_SECS = 0.1
"""The interval at which the scheduler's port is polled, and the time limit of each attempt."""
SCHEDULER_ANSWER_SECS = 2.0
"""A scheduler that accepts no connection for this long does not listen."""
RESTART_PAUSE_SECS, RESTART_PAUSE_MAX_SECS = 0.2, 5.0
"""The first and the longest pause before an ended process is restarted; it doubles each time."""
RESTART_HEALTHY_SECS = 10.0
"""A process that lived this long is restarted after the shortest pause."""

# Jobs and their worker

JOB_POLL_SECS = 0.25
"""The interval at which a job checks whether it must end or may continue."""
JOURNAL_FLUSH_SECS = 0.1
"""Trials and progress are stored at most this late, in one transaction."""
TIME_SLICE_SECS = 2.0
"""A job releases the machine at the first candidate, or case of a check, after this long."""
CANCELLED_CHECK_SECS = 1.5
"""A cancelled job may check its best for this long, so that it ends within three seconds."""
CANCELLED_STEP_SECS = 0.5
"""A step that would exceed `CANCELLED_CHECK_SECS` in any case is aborted this long after a
cancellation."""
CANCELLED_JOB_SECS = 2.25
"""A cancelled job ends after this time even if Python code, which cannot be killed, is running."""
DRAINED_TRIAL_SECS = 4.0
"""The current trial may continue this long when the worker is stopped."""
STORE_RETRY_SECS, STORE_RETRY_MAX_SECS = 0.5, 10.0
"""The first and the longest pause before a job tries the database again; it doubles each time."""
DATABASE_RETRY_MAX_SECS = 10.0
"""The longest pause before a worker looks for jobs again after an error of the database."""
PREPARATION_COUNT_SECS = 0.25
"""A count of waiting preparations is reused this long."""
YIELD_MAX_SECS = 60.0
"""The longest time for which ticket jobs yield to preparations without interruption. Without it,
preparations that never end would delay jobs for ever."""
WORKER_HEARTBEAT_SECS = 0.5
"""The interval of the worker's heartbeats: a tenth of `WORKER_SILENT_SECS`."""
WORKER_SILENT_SECS = 5.0
"""A worker without a heartbeat for this long is not ready."""
WORKER_HUNG_SECS = 30.0
"""A worker whose heartbeats stop for this long is killed, because it will not recover."""
WORKER_HEALTHY_SECS = 30.0
"""A worker that lived this long is replaced immediately."""
WORKER_RESTART_MAX_SECS = 10.0
"""The longest pause before a worker that died is replaced; the pause doubles each time."""
WORKER_DEATHS_SECS = 60.0
"""A death of a worker counts against readiness for this long."""
SUPERVISOR_POLL_SECS = 1.0
"""The interval at which a silent worker is checked."""

# Shared by several modules

DATABASE_SIZE_CACHE_SECS = 2.0
"""The size of the database is reused this long, because measuring it takes a query."""
REPEATED_WARNING_SECS = 30.0
"""A persistent warning is logged once per this time, with a count."""
TEST_SERVICE_SECS = 120.0
"""The time limit of a job of a test service, whose machine is simulated."""
