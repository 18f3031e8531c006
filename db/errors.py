"""Errors of the database, in two families that callers treat differently.

`StoreError`: the database itself cannot be used (the command line exits with 4).
`RefusedError`: the database is fine, what was asked of it is not (4xx over HTTP).
"""
# ruff: noqa: N818  # the names say the condition; "StoreNewerError" would say it twice

from __future__ import annotations

from typing import ClassVar

from tilewright.schedules.errors import TilewrightError


class StoreError(TilewrightError):
    """The database cannot be used as it is.

    Where `transient`, nothing is wrong with what is stored and the same call may succeed later: a
    service goes on and answers 503, a worker pauses and tries again.
    """

    transient: ClassVar[bool] = False


class StoreMissing(StoreError):
    """There is no database at the place named, and it was not to be created."""


class StoreDenied(StoreError):
    """The place named holds no file that this process may open, or write where it has to."""


class StoreFull(StoreError):
    """There is no room left to write; what was acknowledged before is stored."""

    transient = True


class StoreOlder(StoreError):
    """The schema is older than this version needs, and was not to be upgraded."""


class StoreNewer(StoreError):
    """The schema was written by a newer version: nothing is read or changed."""


class StoreBroken(StoreError):
    """Not a database of ours, or a damaged one."""


class StoreHeld(StoreError):
    """Another process holds the database, or the task of its coordinator."""


class StoreBusy(StoreHeld):
    """A lock, or every connection, was taken for longer than we wait: try again."""

    transient = True


class StoreUnreachable(StoreError):
    """The database's server does not answer, or went away in the middle of a call.

    Nothing of that call is acknowledged; calls that read, or whose commit can be found out about,
    were tried again before this was raised.
    """

    transient = True


class StoreUnsafe(StoreError):
    """The server acknowledges commits that a power cut would take back."""


class RefusedError(TilewrightError):
    """The database works; the request made of it is not valid."""


class InvalidRecord(RefusedError):
    """A record that contradicts itself: a time without OK, a time that is no time, ..."""


class NotRegistered(RefusedError):
    """A record, or a job's trial, that refers to something the database does not hold."""


class KeyConflict(RefusedError):
    """One key, two different documents: one of them is not what its key says."""


class BlobTooLarge(RefusedError):
    """More bytes than a blob may have."""


class BadPageToken(RefusedError):
    """A page token this list did not give out."""


class UnknownJob(RefusedError):
    """No job has this id."""


class UnknownKey(RefusedError):
    """No key of the API has this id."""


class QuotaReached(RefusedError):
    """The owner has as much work open as one owner may have."""


class NotAlone(RefusedError):
    """Others wait for this job too: one of its owners cannot end it for all."""


class IdempotencyConflict(RefusedError):
    """An idempotency key was used again for another request."""


class StaleLease(RefusedError):
    """Someone else has taken the job over: this worker's writes to it no longer count."""


class BadTransition(RefusedError):
    """A job cannot go from its state to the one asked for."""
