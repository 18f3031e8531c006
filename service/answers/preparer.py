"""Prepares answers without tuning, in helper processes.

    python -m tilewright.service.answers.preparer    (settings on standard input, as JSON)

For each requested task that was not tuned with this toolchain:

1. Rebuild the records of other toolchains and the imported records, and check them in full. The
   first that passes is stored as measured here, and becomes the best.
2. If none passes, choose the analytic schedule, compile it, check it in full, and serve it as a
   default.

If this machine cannot run code for the target, the answer is the schedule and its LLVM IR. A
process may die at any moment: its lease expires and another process continues.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.db.errors import StaleLease, StoreError
from tilewright.db.values.answers import LEASE_SECS, MAX_CLAIMS, Preparation, PreparationState
from tilewright.db.values.records import ArtefactFile
from tilewright.schedules.errors import TilewrightError, WorkloadError
from tilewright.schedules.full_checks import DISPROVED, MOCKED
from tilewright.schedules.record import MeasureResult, MeasureStatus, TuningRecord
from tilewright.schedules.related import MAX_WORKLOADS
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.service import timeouts
from tilewright.service.answers import analytic, objects
from tilewright.service.answers.failed_checks import safe_trace
from tilewright.service.answers.grades import grade_of, same_toolchain
from tilewright.service.answers.links import MEDIA_TYPES
from tilewright.service.answers.publish import Publish, publish
from tilewright.service.answers.verification import failed_check, renewed, withdraw_wrong
from tilewright.service.database_quota import DatabaseQuota
from tilewright.service.problems import problem_of
from tilewright.service.resolve import targets, toolchains, workloads
from tilewright.tuner import timeouts as tuner_timeouts
from tilewright.tuner.compiling.deadline import DeadlineError, alarm
from tilewright.tuner.emit.variant import Variant
from tilewright.tuner.process.host import cpu_affinity

if TYPE_CHECKING:
    from tilewright.db import Store

# Start-up: a query loads neither SQLAlchemy nor a compiler; functions that need them import them.

log = logging.getLogger("tilewright.preparing")

NICE = 5
MAY_SUCCEED_LATER = frozenset({"internal_error", "compile_failed", "took_too_long"})
"""Codes of errors that may be caused by the machine and not by the task; these are tried again."""
TRIES_IN_A_ROW = 2

NOT_RUN = "nothing was run: this service has no such CPU"
NOT_YET = "not built and verified yet"
VERIFIED = "verified in full"


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a preparation; tests replace them.

    `choose` returns the schedule that is chosen without measuring the workload, with what is known
    about similar tasks. `check` rebuilds a schedule and checks it in full.
    `build` returns its files, with an object only if the schedule was verified. `runs_here` returns
    whether this machine can run code for a target.
    """

    choose: Callable[[Workload, Target, analytic.Knowledge], analytic.Chosen]
    check: Callable[[Workload, Trace, Target], MeasureResult]
    build: Callable[[Workload, Trace, Target, bool], list[ArtefactFile]]
    runs_here: Callable[[Target], bool]
    publish: Publish = publish


def real_steps() -> Steps:
    return Steps(choose_schedule, check_in_full, built_files, runs_here)


@dataclass(frozen=True, slots=True)
class Preparer:
    """Processes the preparations in `store`, until `stop` is set. Its leases belong to `owner`."""

    store: Store
    owner: str
    stop: threading.Event
    steps: Steps
    database_bytes: int = 0

    def work(self, idle_secs: float = timeouts.PREPARER_IDLE_SECS) -> None:
        """Work until stopped, or until there was nothing to do for `idle_secs`."""
        used = looked = time.monotonic()
        token: object = None
        room = DatabaseQuota(self.store, self.database_bytes)
        while not self.stop.is_set() and time.monotonic() - used < idle_secs:
            now = self.store.change_token()
            if (
                now is not None
                and now == token
                and time.monotonic() - looked < timeouts.PREPARER_RECHECK_SECS
            ):
                self.stop.wait(timeouts.PREPARER_POLL_SECS)
                continue
            token, looked = now, time.monotonic()
            while not self.stop.is_set() and room.is_left() and self.work_once():
                used = time.monotonic()

    def work_once(self) -> bool:
        """Process one step of one preparation; return whether there was one."""
        found = self.store.claim_preparation(
            toolchains.toolchain_name(toolchains.toolchain()), self.owner
        )
        if found is None:
            return False
        over = threading.Event()
        threading.Thread(target=self._keep_lease, args=(found, over), daemon=True).start()
        try:
            self._step(found)
        except StaleLease:
            log.warning("preparation %s: another process holds it now", found.key)
        finally:
            over.set()
        return True

    def _step(self, found: Preparation) -> None:
        workload = workloads.workload_of(found.workload_document)
        target = Target.from_json(found.target_document)
        try:
            if found.state is PreparationState.CHOSEN:
                self._finish(found, workload, target)
            elif self._best_of_claims(found, workload, target):
                self.store.drop_preparation(found.key, found.owner)
            else:
                self._choose(found, workload, target)
        except TilewrightError as error:
            if problem_of(error).status == 503:  # the database, not this task
                raise
            self._fail(found, error)
        except Exception as error:
            log.exception("preparation of workload %s: a bug of ours", found.workload_key)
            self._fail(found, error)

    def _best_of_claims(self, found: Preparation, workload: Workload, target: Target) -> bool:
        """Check the records that this toolchain has not checked. Return whether one of them passed,
        and so became the best."""
        tried: list[str] = found.document.setdefault("tried", [])
        claims = {record.key: record for record in self._claims(found)}
        untried = {key: record for key, record in claims.items() if key not in tried}
        if not self.steps.runs_here(target):
            tried.extend(untried)  # they cannot be checked here
            return False
        for key, record in untried.items():
            trace = Trace.from_json(record.trace)
            result = self.steps.check(workload, trace, target)
            log.info("record %s of another maker: %s", key, result.status)
            tried.append(key)
            if result.ok and (own := renewed(self.store, record, result)) is not None:
                self.steps.publish(self.store, workload, target, own, trace)
                return True
            if result.status in DISPROVED:
                withdraw_wrong(self.store, key, result)
        return False

    def _claims(self, found: Preparation) -> list[TuningRecord]:
        work = found.workload_key, found.target_key
        best, here = self.store.best(*work), toolchains.toolchain()
        other = (
            best is not None
            and best.toolchain.codegen_version != MOCKED
            and not same_toolchain(best.toolchain, here)
        )
        return [
            *([best] if best is not None and other else []),
            *self.store.claims(*work)[:MAX_CLAIMS],
        ]

    def _choose(self, found: Preparation, workload: Workload, target: Target) -> None:
        try:
            related = self.store.related(workload, target, MAX_WORKLOADS)
            known = analytic.Knowledge(related, self.store.model(target))
            chosen = self.steps.choose(workload, target, known)
        except DeadlineError as error:
            log.warning("workload %s: %s; it is served as written", found.workload_key, error)
            chosen = analytic.Chosen(Trace())
        trace, note = self._safe(workload, chosen, target)
        before = {n: v for n, v in found.document.items() if n not in ("problem", "try_again_at")}
        fields = {"verified": False, "note": f"{note}; {NOT_YET}", "source": chosen.source}
        document = {**before, "trace": trace.to_json(), **fields}
        self.store.settle_preparation(found.key, found.owner, PreparationState.CHOSEN, document)

    def _finish(self, found: Preparation, workload: Workload, target: Target) -> None:
        source = str(found.document.get("source", ""))
        chosen = analytic.Chosen(Trace.from_json(found.document["trace"]), source)
        trace, note = self._safe(workload, chosen, target)
        verified = False
        if self.steps.runs_here(target):
            trace, note, result = self._checked(workload, chosen, target)
            verified = result.ok
            failed = f"; not verified: {result.status} {result.detail}"
            note += f", {VERIFIED}" if verified else failed
        else:
            note += f"; {NOT_RUN}"
        files = self.steps.build(workload, trace, target, verified)
        document = {
            **found.document,
            "trace": trace.to_json(),
            "verified": verified,
            "note": note[:500],
        }
        state = PreparationState.READY
        self.store.settle_preparation(found.key, found.owner, state, document, files)

    def _safe(
        self, workload: Workload, chosen: analytic.Chosen, target: Target
    ) -> tuple[Trace, str]:
        checks = self.store.full_checks(workload.key, target.key)
        return safe_trace(workload, chosen, checks, toolchains.toolchain())

    def _checked(
        self, workload: Workload, chosen: analytic.Chosen, target: Target
    ) -> tuple[Trace, str, MeasureResult]:
        """Return a schedule that may be served, a note, and the result of its full check. A
        schedule with wrong results (a bug of Tilewright) is recorded, and the next schedule is
        tried."""
        while True:
            trace, note = self._safe(workload, chosen, target)
            result = self.steps.check(workload, trace, target)
            if result.status not in DISPROVED:
                return trace, note, result
            log.error("a default of %s is wrong: %s %s", workload.key, result.status, result.detail)
            self.store.add([failed_check(workload, target, trace, result)])

    def _fail(self, found: Preparation, error: Exception) -> None:
        if isinstance(error, TilewrightError):
            problem = problem_of(error)
            fields = {"code": problem.code, "detail": problem.detail, "advice": problem.advice}
        else:
            fields = {
                "code": "internal_error",
                "detail": f"{type(error).__name__}: the service's log has the details",
                "advice": "Report it with the workload.",
            }
        failures = int(found.document.get("failures", 0)) + 1
        document = {**found.document, "problem": fields, "failures": failures}
        document.pop("trace", None)
        if fields["code"] in MAY_SUCCEED_LATER and failures % TRIES_IN_A_ROW:
            state = PreparationState.WANTED
        else:
            state = PreparationState.FAILED
            if fields["code"] in MAY_SUCCEED_LATER:
                document["try_again_at"] = (
                    time.time() + timeouts.FAILED_PREPARATION_RETRY_SECS * failures
                )
        self.store.settle_preparation(found.key, found.owner, state, document)

    def _keep_lease(self, found: Preparation, over: threading.Event) -> None:
        deadline = time.monotonic() + timeouts.PREPARATION_STEP_SECS
        while not over.wait(LEASE_SECS / 3):
            if time.monotonic() > deadline:
                log.error("preparation %s takes too long; its process ends", found.key)
                os._exit(1)
            try:
                self.store.renew_preparation(found.key, found.owner)
            except StoreError as error:
                log.warning("preparation %s: heartbeat missed: %s", found.key, error)


def choose_schedule(
    workload: Workload, target: Target, known: analytic.Knowledge
) -> analytic.Chosen:
    """Return the schedule chosen without measuring the workload, in the main thread of this
    process. Raise DeadlineError or WorkloadError."""
    return analytic.default_schedule(workload, target, known)


def check_in_full(workload: Workload, trace: Trace, target: Target) -> MeasureResult:
    """Return the result of a full check in fresh processes; OUT_OF_MEMORY if memory is too small
    for it."""
    from tilewright.tuner.measure.local import verify_full

    try:
        return verify_full(workload, trace, target)
    except WorkloadError as error:
        return MeasureResult(MeasureStatus.OUT_OF_MEMORY, detail=str(error))


def built_files(
    workload: Workload, trace: Trace, target: Target, verified: bool
) -> list[ArtefactFile]:
    """Return the object, header and LLVM IR of a schedule; only its LLVM IR if it is not
    verified."""
    from tilewright.tuner.emit.kernel import llvm_text

    symbol = objects.symbol_name(None, workload)
    with alarm(tuner_timeouts.COMPILE_DEADLINE_SECS, "building a kernel"):
        if verified:
            variant = Variant(target.cpu, trace, target)
            files = objects.build(workload, variant, symbol, ll=True, asm=False)
        else:
            text = llvm_text(workload, trace, target, symbol)
            files = [objects.BuiltFile("llvm", f"{symbol}.ll", text.encode())]
    return [ArtefactFile(f.kind, f.name, MEDIA_TYPES[f.kind], f.data) for f in files]


def runs_here(target: Target) -> bool:
    """Return whether this machine can run code for `target`."""
    return grade_of(target, targets.this_machine()) is not None


def main() -> int:
    """Run a preparer until it is stopped, or its parent process has ended."""
    from tilewright.db import open_store
    from tilewright.service.logs import configure

    settings = json.load(sys.stdin)
    configure(as_json=settings["json_log"])
    os.nice(NICE)
    cpus = cpu_affinity()
    if len(cpus) > 1:
        os.sched_setaffinity(0, set(cpus[:-1]))  # serial kernels are timed on the last CPU
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)
    threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
    owner = f"{socket.gethostname()}:{os.getpid()}"
    try:
        with open_store(settings["db_url"] or None, create=False, upgrade=False) as store:
            try:
                limit_bytes = int(settings["database_bytes"])
                Preparer(store, owner, stop, real_steps(), limit_bytes).work()
            finally:
                store.release_preparations(owner)
    except TilewrightError as error:
        problem = problem_of(error)
        log.error("%s", problem.detail, extra={"code": problem.code})
        return problem.exit_code
    return 0


def _exit(number: int, frame: object) -> None:
    """Exit through `finally` blocks, so that resources are released."""
    raise SystemExit(0)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
