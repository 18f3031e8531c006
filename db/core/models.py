"""The tables, with constraints that exclude invalid contents independently of callers.

`db/migrations` builds the same schema step by step; a test compares the two.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ..values.moments import moment_of, rfc3339

MAX_BLOB_BYTES = 4 * 1024 * 1024

Key = String(80)  # "sha256:" and 64 hex digits fit
Moment = String(27)
RowId = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers only INTEGER keys
UNKNOWN_MOMENT = datetime.min.replace(tzinfo=UTC)
"""The value that represents a damaged timestamp; `db check` reports it."""


class UtcMoment(TypeDecorator[datetime]):
    """A timestamp as RFC 3339 text in UTC, of fixed width, so it sorts and compares as text.

    The database's own type is not used: SQLite has none, and stores no time zone.
    """

    impl = String(27)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        return None if value is None else rfc3339(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:
        try:
            return None if value is None else moment_of(value)
        except (TypeError, ValueError):
            return UNKNOWN_MOMENT


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: UtcMoment(),
        float: Double(),
    }


class WorkloadRow(Base):
    """One computation. `document` is canonical JSON text, `name` is for display. `structure` is the
    key of its structure (`schedules.workload.structure`), `form` the key of the form that all its
    spellings have in common (`schedules.sketches.forms.spellings`); None if not computed."""

    __tablename__ = "workload"

    key: Mapped[str] = mapped_column(Key, primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    flops: Mapped[int] = mapped_column(BigInteger)
    document: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime]
    row_sha256: Mapped[str] = mapped_column(String(64))
    structure: Mapped[str | None] = mapped_column(String(64), index=True)
    form: Mapped[str | None] = mapped_column(String(64), index=True)


class TargetRow(Base):
    """One kind of machine. Of `document`, only the probes may change; the key does not cover
    them."""

    __tablename__ = "target"

    key: Mapped[str] = mapped_column(Key, primary_key=True)
    document: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime]
    row_sha256: Mapped[str] = mapped_column(String(64))


class RecordRow(Base):
    """One measured candidate, immutable.

    `document` (canonical JSON text) is the record. The other columns repeat the fields that queries
    use, and `row_sha256` covers all columns together, so damage to any field is detected. `id`
    increases in the order of arrival.
    """

    __tablename__ = "record"
    __table_args__ = (
        # NOT NULL matters: SQLite converts NaN to NULL, and NULL sorts before every time.
        CheckConstraint(
            "(status = 'ok' AND estimate_secs IS NOT NULL"
            " AND estimate_secs > 0 AND estimate_secs < 1000000)"
            " OR (status <> 'ok' AND estimate_secs IS NULL)",
            name="estimate",
        ),
        CheckConstraint("threads >= 1 AND trial >= 0", name="counts"),
        UniqueConstraint("key"),
        Index("ix_record_work", "workload_key", "target_key", "id"),
        Index("ix_record_fastest", "workload_key", "target_key", "verified_level", "estimate_secs"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    key: Mapped[str] = mapped_column(Key)
    workload_key: Mapped[str] = mapped_column(Key, ForeignKey("workload.key"))
    target_key: Mapped[str] = mapped_column(Key, ForeignKey("target.key"))
    threads: Mapped[int]
    status: Mapped[str] = mapped_column(String(24))
    estimate_secs: Mapped[float | None]
    codegen_version: Mapped[int]
    llvmlite: Mapped[str] = mapped_column(String(64))
    llvm: Mapped[str] = mapped_column(String(64))
    seed: Mapped[int] = mapped_column(BigInteger)
    strategy: Mapped[str | None] = mapped_column(String(32))
    trial: Mapped[int]
    verified_level: Mapped[str] = mapped_column(String(16))
    object_sha256: Mapped[str | None] = mapped_column(Key)
    created_at: Mapped[str] = mapped_column(String(27))
    document: Mapped[str] = mapped_column(Text)
    row_sha256: Mapped[str] = mapped_column(String(64))


class ModelRow(Base):
    """A learned model of one target. `timings` is "" for a model of kernels that were run,
    otherwise the mocked toolchain. `key` is the hash of `document`; `quality` is what the model was
    trained on and its held-out error. The row of a target with the largest `id` is used."""

    __tablename__ = "model"
    __table_args__ = (
        UniqueConstraint("target_key", "timings", "key"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    target_key: Mapped[str] = mapped_column(Key, ForeignKey("target.key"))
    timings: Mapped[str] = mapped_column(String(130))
    key: Mapped[str] = mapped_column(Key)
    created_at: Mapped[str] = mapped_column(Moment)
    document: Mapped[str] = mapped_column(Text)
    quality: Mapped[str] = mapped_column(Text)
    row_sha256: Mapped[str] = mapped_column(String(64))


class WithdrawnRow(Base):
    """A record that was proven wrong after it was stored. It is kept, but never best again."""

    __tablename__ = "withdrawn"

    record_key: Mapped[str] = mapped_column(Key, ForeignKey("record.key"), primary_key=True)
    reason: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime]


class BestRow(Base):
    """The best record of a task: a pointer, moved by compare-and-swap on `version`."""

    __tablename__ = "best"

    workload_key: Mapped[str] = mapped_column(Key, ForeignKey("workload.key"), primary_key=True)
    target_key: Mapped[str] = mapped_column(Key, ForeignKey("target.key"), primary_key=True)
    record_key: Mapped[str | None] = mapped_column(Key, ForeignKey("record.key"))
    version: Mapped[int]
    moved_at: Mapped[datetime]


class BestMoveRow(Base):
    """One move of a best pointer, with its reason."""

    __tablename__ = "best_move"
    __table_args__ = (
        UniqueConstraint("workload_key", "target_key", "version"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    workload_key: Mapped[str] = mapped_column(Key)
    target_key: Mapped[str] = mapped_column(Key)
    version: Mapped[int]
    from_record_key: Mapped[str | None] = mapped_column(Key)
    to_record_key: Mapped[str | None] = mapped_column(Key)
    reason: Mapped[str] = mapped_column(Text)
    moved_at: Mapped[datetime]


class BlobRow(Base):
    """Bytes named by their hash: object files, headers, LLVM IR. `built_at` is set if a build
    requested the bytes: lock files, which the database cannot see, may refer to them."""

    __tablename__ = "blob"
    __table_args__ = (CheckConstraint(f"length(data) <= {MAX_BLOB_BYTES}", name="size"),)

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    media_type: Mapped[str] = mapped_column(String(100))
    data: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[datetime]
    built_at: Mapped[datetime | None]


class ArtefactRow(Base):
    """A file that a record was compiled into. The bytes are a blob; `name` is the file's name."""

    __tablename__ = "artefact"
    __table_args__ = (CheckConstraint("bytes >= 0", name="bytes"),)

    record_key: Mapped[str] = mapped_column(Key, ForeignKey("record.key"), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(String(100))
    sha256: Mapped[str] = mapped_column(String(64), ForeignKey("blob.sha256"))
    bytes: Mapped[int]
    row_sha256: Mapped[str] = mapped_column(String(64))


class PreparationRow(Base):
    """The answer that one toolchain prepared for a task that was not tuned with it. `row_sha256`
    covers the columns that determine the answer."""

    __tablename__ = "preparation"
    __table_args__ = (
        CheckConstraint("state IN ('WANTED','CHOSEN','READY','FAILED')", name="state"),
        CheckConstraint("(owner IS NULL) = (lease_until IS NULL)", name="lease"),
        UniqueConstraint("workload_key", "target_key", "toolchain"),
        Index("ix_preparation_state", "state", "created_at"),
        Index("ix_preparation_asked_by", "asked_by", "turn"),
    )

    key: Mapped[str] = mapped_column(Key, primary_key=True)
    """The hash of the next three columns."""
    workload_key: Mapped[str] = mapped_column(Key, ForeignKey("workload.key"))
    target_key: Mapped[str] = mapped_column(Key, ForeignKey("target.key"))
    toolchain: Mapped[str] = mapped_column(Key)
    state: Mapped[str] = mapped_column(String(12))
    document: Mapped[str] = mapped_column(Text)
    """The result, as canonical JSON text."""
    job_id: Mapped[str | None] = mapped_column(String(26), ForeignKey("job.id"))
    """The job that tunes the task."""
    owner: Mapped[str | None] = mapped_column(String(200))
    """The process that works on the row."""
    lease_until: Mapped[float | None]
    """The end of its lease, in seconds on the clock of leases."""
    attempts: Mapped[int]
    created_at: Mapped[datetime]
    row_sha256: Mapped[str] = mapped_column(String(64))
    asked_by: Mapped[str | None] = mapped_column(String(64))
    """The owner of the API key that requested the row first, or NULL without a key."""
    turn: Mapped[int | None] = mapped_column(BigInteger)
    """The number of the latest step, counted over all rows. The owner whose last step has the
    lowest number goes next."""


class PreparedFileRow(Base):
    """A file that a prepared schedule was compiled into. The bytes are a blob."""

    __tablename__ = "prepared_file"
    __table_args__ = (CheckConstraint("bytes >= 0", name="bytes"),)

    preparation_key: Mapped[str] = mapped_column(
        Key, ForeignKey("preparation.key"), primary_key=True
    )
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(String(100))
    sha256: Mapped[str] = mapped_column(String(64), ForeignKey("blob.sha256"))
    bytes: Mapped[int]
    row_sha256: Mapped[str] = mapped_column(String(64))


class ConfirmationRow(Base):
    """An imported claim that was rebuilt, verified and timed here, and the resulting record."""

    __tablename__ = "confirmation"

    claim_key: Mapped[str] = mapped_column(Key, ForeignKey("record.key"), primary_key=True)
    record_key: Mapped[str] = mapped_column(Key, ForeignKey("record.key"))
    created_at: Mapped[datetime]


class JobRow(Base):
    """One tuning job. Documents are canonical JSON text, and timestamps are text.

    `row_sha256` covers every other column and is compared before they are parsed, so a damaged job
    does not affect other jobs.
    """

    __tablename__ = "job"
    __table_args__ = (
        CheckConstraint(
            "state IN ('QUEUED','RUNNING','CANCELLING','SUCCEEDED','FAILED','CANCELLED')",
            name="state",
        ),
        CheckConstraint("(owner IS NULL) = (lease_until IS NULL)", name="lease"),
        UniqueConstraint("flight_key"),
        Index("ix_job_state", "state", "id"),
        Index("ix_job_waiting", "state", "priority", "arrival"),
    )

    id: Mapped[str] = mapped_column(String(26), primary_key=True)  # a ULID: sorts by time
    state: Mapped[str] = mapped_column(String(12))
    priority: Mapped[int]
    arrival: Mapped[int] = mapped_column(BigInteger)
    """The number of the job's first event, which orders jobs independently of clocks."""
    request: Mapped[str] = mapped_column(Text)
    flight_key: Mapped[str | None] = mapped_column(Key)
    """Set while an equal request should join this job."""
    progress: Mapped[str] = mapped_column(Text)
    result: Mapped[str | None] = mapped_column(Text)
    error: Mapped[str | None] = mapped_column(Text)
    owner: Mapped[str | None] = mapped_column(String(200))
    lease_until: Mapped[float | None]
    """The end of the lease, in seconds on the clock of leases (`Database.lease_clock`)."""
    lease_secs: Mapped[float | None]
    epoch: Mapped[int]
    failures: Mapped[int]
    created_at: Mapped[str] = mapped_column(Moment)
    started_at: Mapped[str | None] = mapped_column(Moment)
    finished_at: Mapped[str | None] = mapped_column(Moment)
    row_sha256: Mapped[str] = mapped_column(String(64))


class JobRequestRow(Base):
    """The job that an idempotency key created, for as long as the job is stored."""

    __tablename__ = "job_request"

    idempotency_key: Mapped[str] = mapped_column(String(255), primary_key=True)
    body_sha256: Mapped[str] = mapped_column(Key)
    job_id: Mapped[str] = mapped_column(String(26), ForeignKey("job.id"))
    created_at: Mapped[str] = mapped_column(Moment)
    row_sha256: Mapped[str] = mapped_column(String(64))


class JobEventRow(Base):
    """An event of a job. `id` only increases: it is the event id of the stream."""

    __tablename__ = "job_event"
    __table_args__ = (
        Index("ix_job_event_job", "job_id", "id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    job_id: Mapped[str] = mapped_column(String(26), ForeignKey("job.id"))
    epoch: Mapped[int]
    kind: Mapped[str] = mapped_column(String(32))
    data: Mapped[str] = mapped_column(Text)
    created_at: Mapped[str] = mapped_column(Moment)
    row_sha256: Mapped[str] = mapped_column(String(64))


class JobTrialRow(Base):
    """The record of one trial of a job. A trial reused from an earlier run counts too.

    `candidate` is the candidate that the search proposed, as JSON numbers, or NULL if unknown.
    """

    __tablename__ = "job_trial"

    job_id: Mapped[str] = mapped_column(String(26), ForeignKey("job.id"), primary_key=True)
    trial: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    record_key: Mapped[str] = mapped_column(Key, ForeignKey("record.key"))
    epoch: Mapped[int]
    row_sha256: Mapped[str] = mapped_column(String(64))
    candidate: Mapped[str | None] = mapped_column(Text)


class ApiKeyRow(Base):
    """An API key. The secret itself is not stored, only `secret_sha256`.

    `row_sha256` covers the other columns, so that a damaged scope or date grants no access.
    """

    __tablename__ = "api_key"

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    owner: Mapped[str] = mapped_column(String(64))
    note: Mapped[str] = mapped_column(String(200))
    scopes: Mapped[str] = mapped_column(String(100))  # alphabetical, separated by spaces
    secret_sha256: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    row_sha256: Mapped[str] = mapped_column(String(64))


class JobOwnerRow(Base):
    """An owner of a job; a job has several owners if equal requests joined it. An owner that
    withdrew at `withdrawn_at` may only read the job."""

    __tablename__ = "job_owner"
    __table_args__ = (Index("ix_job_owner_owner", "owner", "job_id"),)

    job_id: Mapped[str] = mapped_column(String(26), ForeignKey("job.id"), primary_key=True)
    owner: Mapped[str] = mapped_column(String(64), primary_key=True)
    withdrawn_at: Mapped[datetime | None]
