"""Errors of the database, in two families that callers treat differently.

`StoreError`: the database itself cannot be used (the command line exits with 4). `RefusedError`:
the database works, but the request is not valid (4xx over HTTP).
"""
# ruff: noqa: N818  # the names state the condition; "StoreNewerError" would state it twice

from __future__ import annotations

from typing import ClassVar

from tilewright.schedules.errors import ErrorCategory, TilewrightError


class StoreError(TilewrightError):
    """The database cannot be used as it is.

    If `transient`, the stored data are intact and the same call may succeed later: a service
    continues and responds with 503, a worker pauses and tries again.
    """

    code = "database_unusable"
    category = ErrorCategory.DATABASE
    title = "Database unusable"
    advice = "Run `tilewright db check`, which reports the damage."

    transient: ClassVar[bool] = False


class StoreMissing(StoreError):
    """No database exists at the given location, and the caller did not allow its creation."""

    code = "database_missing"
    title = "Database does not exist"
    advice = "Name another with --db or TILEWRIGHT_DB."


class StoreDenied(StoreError):
    """This process may not open the database at the given location, or may not write it."""

    code = "database_denied"
    title = "Access to the database denied"
    advice = "Name another with --db or TILEWRIGHT_DB."


class StoreFull(StoreError):
    """No space is left for a write. All acknowledged writes are stored."""

    code = "database_full"
    title = "No space left"
    advice = "Free some space (`df -h` shows the file systems), then run the same command again."

    transient = True


class StoreOlder(StoreError):
    """The schema is older than this version needs, and the caller did not allow an upgrade."""

    code = "database_older"
    title = "Database was made by an older version"
    advice = "The upgrade keeps everything that is stored."


class StoreNewer(StoreError):
    """The schema was written by a newer version: nothing is read or changed."""

    code = "database_newer"
    title = "Database was made by a newer version"
    advice = "Upgrade Tilewright, or use another --db; nothing was read or changed."


class StoreBroken(StoreError):
    """The database does not belong to Tilewright, or it is damaged."""

    code = "database_broken"
    title = "Database damaged"
    advice = "Restore a backup (docs/operations.md), or run `tilewright import FILE --db NEW`."


class StoreHeld(StoreError):
    """Another process has locked the database, or is its coordinator."""

    code = "database_held"
    title = "Database held by another process"
    advice = "Wait for the other process (`fuser FILE` finds it), or use another --db."


class StoreBusy(StoreHeld):
    """A lock, or every connection of the pool, was in use for longer than the timeout."""

    code = "database_busy"
    title = "Database busy"
    advice = "Try again: nothing of this call was stored."

    transient = True


class StoreUnreachable(StoreError):
    """The database's server does not respond, or failed during a call.

    Nothing of that call is acknowledged. It was retried for some seconds before this was raised.
    """

    code = "database_unreachable"
    title = "Database server unreachable"
    advice = "Check that its server runs, then try again: nothing of this call was stored."

    transient = True


class StoreUnsafe(StoreError):
    """The server acknowledges commits that a power failure would undo."""

    code = "database_unsafe"
    title = "Server does not guarantee durability"
    advice = "Set fsync, full_page_writes and synchronous_commit to on."


class RefusedError(TilewrightError):
    """The database works; the request is not valid."""

    code = "refused"
    title = "Rejected by the store"
    advice = "Correct the named value; `tilewright doctor` checks the installation."


class InvalidRecord(RefusedError):
    """A record that contradicts itself, such as a time without the status OK or a NaN time."""


class NotRegistered(RefusedError):
    """A record, or a job's trial, refers to a row that the database does not have."""


class KeyConflict(RefusedError):
    """Two different documents have one key, so one of them does not match its key."""


class BlobTooLarge(RefusedError):
    """The data exceed the size limit of a blob."""


class BadPageToken(RefusedError):
    """The page token was not issued by this list."""

    code = "bad_page_token"
    category = ErrorCategory.MALFORMED
    title = "Invalid page token"
    advice = "Start at the first page."


class UnknownJob(RefusedError):
    """No job has this id."""

    code = "not_found"
    category = ErrorCategory.NOT_FOUND
    title = "No such job"
    advice = "`GET /v1/jobs` lists the jobs."


class UnknownKey(RefusedError):
    """No API key has this id."""

    code = "not_found"
    category = ErrorCategory.NOT_FOUND
    title = "No such key"
    advice = "`tilewright keys list` lists the keys."


class QuotaReached(RefusedError):
    """The owner has reached the limit on open work."""

    code = "quota_reached"
    category = ErrorCategory.QUOTA
    title = "Open-job quota reached"
    advice = "Wait until some jobs have ended, or cancel one; `GET /limits` lists the limits."


class NotAlone(RefusedError):
    """The job belongs to other owners, so the caller cannot cancel it."""

    code = "shared_job"
    category = ErrorCategory.CONFLICT
    title = "Other owners share this job"
    advice = "Nothing was changed: only its owners, or a key with the scope admin, can cancel it."


class IdempotencyConflict(RefusedError):
    """An idempotency key was reused for a different request."""

    code = "idempotency_key_reused"
    category = ErrorCategory.INVALID
    title = "Idempotency-Key reused with another body"
    advice = "Use a new key for a new request."


class StaleLease(RefusedError):
    """Another worker has leased the job, so writes of the former worker are rejected."""


class BadTransition(RefusedError):
    """A job cannot change from its state to the requested one."""

    code = "conflict"
    category = ErrorCategory.CONFLICT
    title = "Conflict"
    advice = "Read the job again: its state has changed."
