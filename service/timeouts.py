"""Every time limit and polling interval of the service, in seconds.

Modules read them as `NAME` when they need them, so that a test can replace one. What an
operator may change is in `settings.py` and `limits.py`.
"""

from __future__ import annotations

# The client

CLIENT_CONNECT_SECS = 5.0
"""The time to connect to a service: a running service accepts immediately."""
CLIENT_LAST_TRY_SECS = 0.05
"""The least time of an attempt that begins at the deadline of its call."""
CLIENT_PAUSE_MAX_SECS = 10.0
"""The longest pause between two attempts of a call: longer pauses only delay its success."""
CLIENT_LONG_POLL_SECS = 30.0
"""One request of `Client.wait`, which the service holds until the job is done: half of what a
service allows (`wait_secs` in `/limits`)."""
CLIENT_OUTAGE_SECS = 120.0
"""A client that waits for a job continues this long without a service, for example during a
restart."""
CLIENT_STREAM_SILENCE_SECS = 60.0
"""The longest silence of an event stream, whose heartbeats come several times as often."""
CLIENT_BUILD_SECS = 120.0
"""The time a service may need to compile and verify a kernel, in addition to the time of any other
call."""

# The command line

TERMINAL_CALL_SECS = 5.0
"""The time limit of a command's call to a service: a user waits at the terminal."""
PROGRESS_LINE_SECS = 2.0
"""The time between two progress lines in a log, unless there is a new best."""
ACTIVITY_LINE_SECS = 1.0
"""An activity is reported in a log once it has lasted this long: shorter ones would flood it."""
PROGRESS_POLL_SECS = 0.25
"""The interval at which the current activity is polled: a quarter of `ACTIVITY_LINE_SECS`."""
INTERRUPTED_STEP_SECS = 0.75
"""A step that stores no result when it is aborted (describing the machine, a reference, a full
check) may continue this long after Ctrl-C or SIGTERM."""
INTERRUPTED_TUNE_SECS = 8.0
"""`tune` may check its best for this long after Ctrl-C or SIGTERM: process managers usually send
SIGKILL ten seconds after SIGTERM."""
NOISE_MEASUREMENT_SECS = 0.4
"""`doctor` repeats a fixed computation for this long: enough for 20 samples on a slow core."""

# Requests

KEY_REVOCATION_SECS = 1.0
"""A revoked key stays valid for at most this long: the keys are then read again."""
UNKNOWN_KEY_READ_SECS = 0.25
"""The interval between two reads of all keys for an unknown key: requests with invented keys cost
no more."""
KEYS_WITHOUT_DATABASE_SECS = 3600.0
"""Keys stay valid this long while the database cannot be read. No key can be created or revoked in
the database meanwhile, unless only this process cannot reach it."""
KEY_READ_SECS = 2.0
"""The time limit of a read of the keys; after it the known keys are used."""
HEALTH_CHECK_SECS = 2.0
"""The time limit of a check of the database for `/readyz` and `/metrics`, whose callers give up
after a few seconds."""
CONNECTION_WARNING_SECS = 60.0
"""The time between two equal warnings about connections: any client can cause them."""
EVENT_READER_SECS = 30.0
"""A reader of an event stream that accepts nothing for this long is disconnected."""
FEED_POLL_SECS, FEED_POLL_MAX_SECS = 0.25, 1.0
"""The intervals at which new events are polled, with few and with many followers."""
FEED_POLL_SECS_PER_FOLLOWER = 0.02
"""Sending an event to a follower takes 0.3 ms, so all followers take at most 1.5 % of a core, and
up to twelve get every event within a quarter of a second."""
FEED_STALE_SECS = 2.0
"""Every followed job is read this often even without a sign of change: on PostgreSQL the events of
two jobs can become visible in another order than their ids."""
PREPARATION_POLL_SECS = 0.05
"""The interval at which changes are polled while requests wait for a preparation."""
PREPARATION_RECHECK_SECS = 1.0
"""Preparations are read this often even without a sign of change, and preparers woken."""
PREPARATION_RETRY_MAX_SECS = 30
"""The longest `Retry-After` for an answer that is being prepared."""
SECS_PER_PREPARATION = 2.5
"""Typical time of a preparation, from which `Retry-After` is estimated."""
INSPECTION_SECS = 20.0
"""A helper process may compute loops, assembly or a bound for a page this long."""
SESSION_COOKIE_SECS = 30 * 86_400
"""A browser keeps the key of `/login` for 30 days."""

# Preparation of answers

PREPARER_IDLE_SECS = 60.0
"""A preparer without work ends after this long."""
PREPARER_POLL_SECS = 0.1
"""The interval at which changes in the database are polled."""
PREPARER_RECHECK_SECS = 2.0
"""A preparer polls for work this often even without a change, because leases expire without one."""
PREPARER_STOP_SECS = 2.0
"""A preparer may take this long to stop after SIGTERM."""
PREPARER_RESTART_SECS, PREPARER_RESTART_MAX_SECS = 1.0, 60.0
"""The pause before a failed preparer is replaced: doubled each time, from the first value to the
second."""
PREPARATION_STEP_SECS = 300.0
"""One step may take this long, deadlines of its parts included; then its process exits."""
FAILED_PREPARATION_RETRY_SECS = 30.0
"""A failed preparation may be requested again after this long, times its failures."""

# Fleets

FLEET_STATUS_SECS = 2.0
"""A fleet's scheduler may take this long to list its machines: a page waits for it."""
FLEET_STATUS_CACHE_SECS = 1.0
"""A list of machines is reused this long: the scheduler has other things to do."""
FLEET_SIZE_CACHE_SECS = 5.0
"""The number of machines is reused this long: it only bounds how many jobs are open."""
FLEET_JOIN_SECS = 60
"""A machine without a scheduler gives up after this long, and starts again."""
FLEET_WORKER_POLL_SECS = 0.5
"""The interval at which a machine checks that it still belongs to the fleet."""
MACHINE_SILENT_SECS = 10.0
"""A machine without a sign of life for this long is shown as silent."""
SCHEDULER_START_SECS = 20.0
"""The fleet's scheduler may take this long to listen: Dask loads for some seconds."""
SCHEDULER_POLL_SECS = 0.1
"""The interval at which the scheduler's port is polled, and the time limit of each attempt."""
SCHEDULER_ANSWER_SECS = 2.0
"""A scheduler that accepts no connection for this long does not listen."""
RESTART_PAUSE_SECS, RESTART_PAUSE_MAX_SECS = 0.2, 5.0
"""The pause before a process that ended is restarted: doubled each time, from the first value to
the second."""
RESTART_HEALTHY_SECS = 10.0
"""A process that lived this long is started again after the shortest pause."""

# Jobs and their worker

JOB_POLL_SECS = 0.25
"""The interval at which a job checks whether it must end or may continue."""
JOURNAL_FLUSH_SECS = 0.1
"""Trials and progress are stored at most this late: one transaction for all of them."""
TIME_SLICE_SECS = 2.0
"""A job releases the machine at the first candidate, or case of a check, after this long."""
CANCELLED_CHECK_SECS = 1.5
"""A cancelled job may check its best for this long: it is to end within three seconds."""
CANCELLED_STEP_SECS = 0.5
"""The limit of a cancelled job's step that would take longer than `CANCELLED_CHECK_SECS` in any
case."""
CANCELLED_JOB_SECS = 2.25
"""A cancelled job ends after this long even if Python code, which cannot be killed, is still
running."""
DRAINED_TRIAL_SECS = 4.0
"""The trial in flight may continue this long when the worker is stopped."""
STORE_RETRY_SECS, STORE_RETRY_MAX_SECS = 0.5, 10.0
"""The pause before a job tries the database again: doubled each time, from the first value to the
second."""
DATABASE_RETRY_MAX_SECS = 10.0
"""The longest pause before a worker looks for jobs again in a database that failed."""
PREPARATION_COUNT_SECS = 0.25
"""A count of waiting preparations is reused this long."""
YIELD_MAX_SECS = 60.0
"""Ticket jobs yield to preparations at most this long, counted from the last moment without any:
preparations that no process works on, or that never end, must not delay a job for ever."""
WORKER_HEARTBEAT_SECS = 0.5
"""The interval of the worker's heartbeats: a tenth of `WORKER_SILENT_SECS`."""
WORKER_SILENT_SECS = 5.0
"""A worker without a heartbeat for this long is not ready."""
WORKER_HUNG_SECS = 30.0
"""A worker that had a heartbeat and has none for this long is killed, because it will not
recover."""
WORKER_HEALTHY_SECS = 30.0
"""A worker that lived this long is replaced immediately."""
WORKER_RESTART_MAX_SECS = 10.0
"""The longest pause before a worker that died is replaced; the pause doubles each time."""
WORKER_DEATHS_SECS = 60.0
"""Deaths of workers count against readiness for this long."""
SUPERVISOR_POLL_SECS = 1.0
"""The interval at which a silent worker is checked."""

# Shared by several modules

DATABASE_SIZE_CACHE_SECS = 2.0
"""The size of the database is reused this long: measuring it takes a query."""
REPEATED_WARNING_SECS = 30.0
"""A persistent warning is logged once per this time, with a count."""
TEST_SERVICE_SECS = 120.0
"""A job of a test service: its machine is simulated."""
