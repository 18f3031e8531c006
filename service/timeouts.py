"""Every time limit and polling interval of the service, in seconds.

Modules read them as `timeouts.NAME` when they need them, so that a test can replace one. What an
operator may change is in `settings.py` and `limits.py`.
"""

from __future__ import annotations

CLIENT_CONNECT_SECS = 5.0
"""To connect to a service: one that is there accepts at once."""
CLIENT_LAST_TRY_SECS = 0.05
"""The least that a try gets which begins at the deadline of its call."""
CLIENT_PAUSE_MAX_SECS = 10.0
"""Between two tries of a call: longer pauses only delay its success."""
CLIENT_LONG_POLL_SECS = 30.0
"""One request of `Client.wait`, which the service holds until the job is done: half of what a
service allows (`wait_secs` in `/limits`)."""
CLIENT_OUTAGE_SECS = 120.0
"""A client that waits for a job goes on this long without a service, as while one starts again."""
CLIENT_STREAM_SILENCE_SECS = 60.0
"""Without a byte in an event stream, whose heartbeats come several times as often."""
CLIENT_BUILD_SECS = 120.0
"""What a service may need to compile and verify a kernel, beyond the time of any other call."""
