"""What answers are made with: evidence that is of one moment, and preparations made once.

The fixtures are those of `store_contract.py`; `clock` moves the store's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.store_values import (
    FILES,
    OTHER_TARGET,
    OTHER_WORKLOAD,
    TARGET,
    WORKLOAD,
    WORKLOADS,
    Clock,
    a_demand,
    a_record,
    full,
    promoted,
    register,
)
from tilewright.db import Store
from tilewright.db.answers.preparations import MAX_ATTEMPTS
from tilewright.db.core.models import Base
from tilewright.db.errors import NotAlone, StaleLease
from tilewright.db.values.answers import (
    LEASE_SECS,
    PreparationQuota,
    PreparationState,
    preparation_key,
)
from tilewright.db.values.jobs import JobQuota
from tilewright.db.values.records import ArtefactFile
from tilewright.db.values.whole import KindStats, OwnerStats, PruneReport

CODEGEN = "codegen 1"
WORK = (WORKLOAD, TARGET.key)
KEY = preparation_key(*WORK, CODEGEN)
TRACE = [{"split": "i"}]
FILE = ArtefactFile("llvm", "neg.ll", "text/x-llvm", b"define")


def demanded(store: Store, *workloads: str, jobs: int = 9, waiting: int = 9) -> set[str]:
    """Demand these with a job each; the workloads that were not taken."""
    demands = [a_demand(w, ({"w": w}, w, f"flight {w}")) for w in workloads or (WORKLOAD,)]
    refused = store.demand(demands, CODEGEN, most_waiting=waiting, most_jobs=jobs)
    return {workload for workload, _ in refused}


def state(store: Store) -> PreparationState | None:
    return store.preparation_states([KEY]).get(KEY)


class AnswerStoreContract:
    """Evidence and preparations."""

    def test_a_token_changes_with_every_commit_and_with_nothing_else(self, store: Store) -> None:
        before = store.change_token()
        assert store.best(*WORK) is None
        assert store.change_token() == before
        if before is not None:  # None: this database cannot tell at once
            store.add([a_record()])
            assert store.change_token() != before

    def test_evidence_gives_what_single_questions_give(self, store: Store) -> None:
        register(store, target=OTHER_TARGET)
        best, other = full(1, 1e-3), replace(full(2, 1e-4), target_key=OTHER_TARGET.key)
        assert promoted(store, best)
        assert promoted(store, other)
        store.add_artefacts(best.key, [FILE])
        here = store.evidence([WORK, (OTHER_WORKLOAD, TARGET.key)])
        assert here[WORK].entry() == store.workload(WORKLOAD)
        assert here[WORK].target_document() == store.target(TARGET.key)
        assert [(one.key, one.record) for one in here[WORK].best()] == [(best.key, best)]
        assert here[WORK].artefacts(best.key) == store.artefacts(best.key)
        assert here[WORK].elsewhere() == []
        assert here[OTHER_WORKLOAD, TARGET.key].entry() is None
        (found,) = store.evidence([WORK], elsewhere=True)[WORK].elsewhere()
        assert found.record == other
        assert found.target_document == store.target(OTHER_TARGET.key)

    def test_equal_rows_are_equal_evidence(self, store: Store) -> None:
        assert promoted(store, full(1, 1e-3))
        first = store.evidence([WORK])
        store.put_blob(b"something else", "x/y")
        assert store.evidence([WORK]) == first
        assert promoted(store, full(2, 1e-4))
        assert store.evidence([WORK]) != first

    def test_damaged_rows_are_in_the_evidence_and_give_no_values(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        assert promoted(store, full(1, 1e-3))
        before = store.evidence([WORK])
        damage("UPDATE record SET trial = 7")
        after = store.evidence([WORK])
        assert after != before
        assert after[WORK].best() == []

    def test_evidence_on_more_works_than_a_query_takes(self, store: Store) -> None:
        assert promoted(store, full(1, 1e-3))
        works = [WORK, *(("f" * 60 + str(n), TARGET.key) for n in range(900))]
        found = store.evidence(works, toolchain=CODEGEN, elsewhere=True)
        assert len(found) == 901
        assert [work for work, one in found.items() if one.best()] == [WORK]

    def test_the_fastest_claims_of_others_are_known(self, store: Store) -> None:
        claims = [a_record(n, n * 1e-4, verified_level="imported") for n in range(1, 6)]
        store.add([*claims, a_record(9, None, verified_level="imported"), a_record(8, 1e-9)])
        store.withdraw(claims[1].key, "wrong")
        keys = [claims[0].key, claims[2].key, claims[3].key]
        assert store.evidence([WORK], toolchain=CODEGEN)[WORK].claims == tuple(keys)
        assert [record.key for record in store.claims(*WORK)][:3] == keys

    def test_a_work_is_prepared_once_whoever_asks(self, store: Store) -> None:
        assert demanded(store, WORKLOAD, OTHER_WORKLOAD) == set()
        assert demanded(store) == set()
        assert store.preparations_waiting(CODEGEN) == 2
        assert len(store.list_jobs().items) == 2
        assert store.workload(OTHER_WORKLOAD) is not None, "demanding makes a work known"
        first = store.claim_preparation(CODEGEN, "one")
        second = store.claim_preparation(CODEGEN, "two")
        assert first is not None
        assert second is not None
        assert {first.workload_key, second.workload_key} == {WORKLOAD, OTHER_WORKLOAD}
        assert store.claim_preparation(CODEGEN, "three") is None
        assert store.claim_preparation("codegen 2", "three") is None

    def test_what_was_found_is_told_with_its_files_and_ticket(self, store: Store) -> None:
        demanded(store)
        found = store.claim_preparation(CODEGEN, "one")
        assert found is not None
        assert found.workload_document["outputs"] == ["B"]
        store.settle_preparation(KEY, "one", PreparationState.CHOSEN, {"trace": TRACE})
        assert state(store) is PreparationState.CHOSEN
        again = store.claim_preparation(CODEGEN, "two")
        assert again is not None
        assert again.document == {"trace": TRACE}
        store.settle_preparation(KEY, "two", PreparationState.READY, {"trace": TRACE}, [FILE])
        prepared = store.evidence([WORK], toolchain=CODEGEN)[WORK].preparation()
        assert prepared is not None
        assert prepared.state is PreparationState.READY
        assert prepared.trace == TRACE
        (file,) = prepared.files
        assert file.sha256 == hashlib.sha256(FILE.data).hexdigest()
        assert prepared.job_id == store.list_jobs().items[0].id
        assert store.claim_preparation(CODEGEN, "three") is None
        assert store.evidence([WORK], toolchain="codegen 2")[WORK].preparation() is None
        assert store.check() == []

    def test_schedules_are_chosen_for_all_before_any_is_built(self, store: Store) -> None:
        demanded(store, WORKLOAD)
        first = store.claim_preparation(CODEGEN, "one")
        assert first is not None
        store.settle_preparation(KEY, "one", PreparationState.CHOSEN, {})
        demanded(store, OTHER_WORKLOAD)
        second = store.claim_preparation(CODEGEN, "one")
        assert second is not None
        assert second.workload_key == OTHER_WORKLOAD

    def test_a_lost_process_is_replaced_and_its_late_words_are_refused(
        self, store: Store, clock: Clock
    ) -> None:
        demanded(store)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            found = store.claim_preparation(CODEGEN, f"owner {attempt}")
            assert found is not None
            clock.advance(LEASE_SECS / 2)
            store.renew_preparation(KEY, f"owner {attempt}")
            clock.advance(LEASE_SECS * 0.9)
            assert store.claim_preparation(CODEGEN, "too early") is None
            clock.advance(LEASE_SECS)
        assert store.claim_preparation(CODEGEN, "the last") is None
        assert state(store) is PreparationState.FAILED
        with pytest.raises(StaleLease, match="another process has leased it"):
            store.settle_preparation(KEY, "owner 3", PreparationState.READY, {})

    def test_a_clock_that_is_set_back_holds_nothing_up(self, store: Store, clock: Clock) -> None:
        demanded(store)
        assert store.claim_preparation(CODEGEN, "one") is not None
        clock.advance(-3600)
        assert store.claim_preparation(CODEGEN, "two") is not None

    def test_what_is_given_up_is_free_at_once(self, store: Store) -> None:
        demanded(store)
        assert store.claim_preparation(CODEGEN, "one") is not None
        store.release_preparations("one")
        assert store.claim_preparation(CODEGEN, "two") is not None

    def test_without_room_works_are_refused_and_jobs_left_out(self, store: Store) -> None:
        assert demanded(store, WORKLOAD, OTHER_WORKLOAD, waiting=1, jobs=0) == {OTHER_WORKLOAD}
        assert store.list_jobs().items == ()
        assert demanded(store, WORKLOAD, waiting=1) == set(), "it waits already"
        assert len(store.list_jobs().items) == 1, "the job comes when there is room"

    def test_tickets_are_their_askers_up_to_a_quota(self, store: Store) -> None:
        demands = [a_demand(w, ({"w": w}, w, f"flight {w}")) for w in (WORKLOAD, OTHER_WORKLOAD)]
        quota = JobQuota(jobs=0, trials=9, tickets=1)
        room: dict[str, Any] = {"most_waiting": 9, "most_jobs": 9}
        assert store.demand(demands, CODEGEN, owner="one", quota=quota, **room) == set()
        [job] = store.list_jobs(owner="one").items
        assert store.job_is_seen_by(job.id, "two"), "an answer names it to everybody"
        with pytest.raises(NotAlone):
            store.request_cancel(job.id, "two")
        store.demand(demands, CODEGEN, owner="two", quota=quota, **room)
        assert len(store.list_jobs(owner="two").items) == 1, "what the first had no room for"
        assert store.request_cancel(job.id, "one").done

    def test_askers_take_turns_however_much_one_of_them_asked_for(self, store: Store) -> None:
        first, second, third, fourth, *_ = WORKLOADS
        room: dict[str, Any] = {"most_waiting": 9, "most_jobs": 0}
        many = [a_demand(w) for w in (first, second, third)]
        store.demand(many, CODEGEN, owner="many", **room)
        order: list[str] = []

        def step() -> None:
            found = store.claim_preparation(CODEGEN, "process")
            assert found is not None
            order.append("one" if found.workload_key == fourth else "many")
            chosen = found.state is PreparationState.WANTED
            state = PreparationState.CHOSEN if chosen else PreparationState.READY
            store.settle_preparation(found.key, "process", state, {})

        step()
        store.demand([a_demand(fourth)], CODEGEN, owner="one", **room)
        for _ in range(7):
            step()
        assert order == ["many", "one", "many", "one", "many", "many", "many", "many"]

    def test_an_owner_has_so_many_waiting_and_so_many_kept(
        self, store: Store, clock: Clock
    ) -> None:
        first, second, third, fourth, *_ = WORKLOADS
        room: dict[str, Any] = {"most_waiting": 9, "most_jobs": 0}
        own = PreparationQuota(waiting=2, kept=1)

        def ask(*workloads: str, owner: str | None = "one") -> set[str]:
            demands = [a_demand(workload) for workload in workloads]
            refused = store.demand(demands, CODEGEN, owner=owner, own=own, **room)
            return {workload for workload, _ in refused}

        def finish(number: int) -> None:
            found = store.claim_preparation(CODEGEN, "process")
            assert found is not None
            file = ArtefactFile("object", "neg.o", "x/o", b"%d" % number)
            store.settle_preparation(found.key, "process", PreparationState.READY, {}, [file])

        assert ask(first, second, third) == {third}
        assert ask(third, owner="two") == set(), "another has room of its own"
        assert ask(fourth, owner=None) == set(), "where no keys are asked for there are no owners"
        for number in range(4):
            clock.advance(1)
            finish(number)
        before = store.counts().blobs
        assert ask(third) == set()
        states = store.preparation_states(
            [preparation_key(w, TARGET.key, CODEGEN) for w in (first, second, third, fourth)]
        )
        assert len(states) == 3, "of its own the newest is kept, those of others stay"
        assert store.counts().blobs == before - 1, "and the files go with the oldest"
        assert store.check() == []

    def test_preparations_are_pruned_with_their_files_unless_a_build_names_them(
        self, store: Store, clock: Clock
    ) -> None:
        register(store)
        built = ArtefactFile("header", "neg.h", "text/x-c", b"int neg(void);")
        demanded(store, jobs=0)
        assert store.claim_preparation(CODEGEN, "one") is not None
        store.settle_preparation(KEY, "one", PreparationState.READY, {}, [FILE, built])
        store.put_blob(built.data, built.media_type)
        assert store.prune().preparations == 0, "too young"
        clock.advance(86_401)
        expected = PruneReport(preparations=1, blobs=1, blob_bytes=len(FILE.data), workloads=1,
                               targets=1)  # fmt: skip
        assert store.prune(dry_run=True) == expected
        assert state(store) is PreparationState.READY, "a dry run deletes nothing"
        assert store.prune() == expected
        assert state(store) is None
        assert store.blob(built.sha256) is not None
        assert store.blob(FILE.sha256) is None
        demanded(store)
        assert state(store) is PreparationState.WANTED, "found again for who asks again"
        clock.advance(86_401)
        assert store.prune().preparations == 0, "its ticket is open"
        assert store.check() == []

    def test_room_is_made_of_what_can_be_made_again_the_oldest_first(
        self, store: Store, clock: Clock
    ) -> None:
        assert promoted(store, full(1, 1e-3))
        kept = store.add_artefacts(full(1, 1e-3).key, FILES)
        for number, workload in enumerate(list(WORKLOADS)[1:4]):
            clock.advance(1)
            store.demand([a_demand(workload)], CODEGEN, most_waiting=9, most_jobs=0)
            found = store.claim_preparation(CODEGEN, "one")
            assert found is not None
            file = ArtefactFile("object", "neg.o", "x/o", bytes([number]) * 1000)
            store.settle_preparation(found.key, "one", PreparationState.READY, {}, [file])
        store.put_blob(b"build", "x/o")
        before = store.used_bytes()
        assert before > 0
        made = store.make_room(1)
        assert (made.preparations, made.blobs, made.blob_bytes) == (3, 3, 3000)
        again = store.make_room(10**9)
        assert (again.preparations, again.blobs, again.blob_bytes) == (0, 1, 5)
        assert store.make_room(10**9).blobs == 0, "files of records stay"
        assert store.artefacts(full(1, 1e-3).key) == kept
        assert store.used_bytes() <= before
        assert store.check() == []

    def test_stats_tell_of_every_table_kind_and_owner(self, store: Store) -> None:
        assert promoted(store, full(1, 1e-3))
        store.add_artefacts(full(1, 1e-3).key, FILES)
        store.add([a_record(2, None), a_record(3, 1e-4, verified_level="imported")])
        room: dict[str, Any] = {"most_waiting": 9, "most_jobs": 9}
        quota = JobQuota(jobs=9, trials=9, tickets=9)
        ticket = a_demand(WORKLOAD, ({"w": 1}, "b", "flight"))
        store.demand([ticket], CODEGEN, owner="one", quota=quota, **room)
        store.demand([a_demand(OTHER_WORKLOAD)], CODEGEN, **room)
        assert all(store.claim_preparation(CODEGEN, "process") for _ in range(2))
        store.settle_preparation(KEY, "process", PreparationState.READY, {}, [FILE])
        store.put_blob(b"build", "x/o")
        told = store.stats()
        assert set(told.tables) == {table.name for table in Base.metadata.sorted_tables}
        assert told.tables["record"].rows == 3
        assert told.tables["record"].bytes > 300
        assert told.tables["job"].oldest is not None
        assert told.tables["artefact"].oldest is None
        assert told.blobs["artefact"].count == 2
        assert told.blobs["prepared"] == KindStats(1, len(FILE.data))
        assert told.blobs["built"] == KindStats(1, 5)
        assert sum(kind.bytes for kind in told.blobs.values()) <= told.used_bytes
        assert told.records == {"ok": 1, a_record(2, None).result.status: 1, "imported": 1}
        assert told.preparations == {"READY": 1, "WANTED": 1}
        assert told.jobs == {"QUEUED": 1}
        assert told.owners["one"] == OwnerStats(
            jobs=1, open_jobs=1, preparations=1, prepared_bytes=len(FILE.data)
        )
        assert told.owners[""].preparations == 1
        assert told.used_bytes > 0
        assert told.disk_bytes > 0

    def test_a_finished_one_is_made_again_only_for_new_records(self, store: Store) -> None:
        demanded(store)
        assert store.claim_preparation(CODEGEN, "one") is not None
        store.settle_preparation(KEY, "one", PreparationState.READY, {"trace": TRACE}, [FILE])
        demanded(store)
        assert state(store) is PreparationState.READY
        again = [a_demand(again=True)]
        store.demand(again, CODEGEN, most_waiting=9, most_jobs=9)
        assert state(store) is PreparationState.WANTED
        prepared = store.evidence([WORK], toolchain=CODEGEN)[WORK].preparation()
        assert prepared is not None
        assert prepared.trace == TRACE, "what it found is served until there is something better"
        assert store.claim_preparation(CODEGEN, "one") is not None
        store.drop_preparation(KEY, "one")
        assert state(store) is None
        assert store.check() == []

    @pytest.mark.parametrize(
        ("change", "kind"),
        [
            ('UPDATE preparation SET document = \'{"trace":[],"verified":true}\'', "preparation"),
            ("UPDATE preparation SET state = 'CHOSEN'", "preparation"),
            ("UPDATE prepared_file SET name = 'other.ll'", "prepared file"),
        ],
    )
    def test_damaged_preparations_are_not_served_and_made_anew(
        self, store: Store, damage: Callable[[str], None], change: str, kind: str
    ) -> None:
        demanded(store)
        assert store.claim_preparation(CODEGEN, "one") is not None
        store.settle_preparation(KEY, "one", PreparationState.READY, {"trace": TRACE}, [FILE])
        damage(change)
        prepared = store.evidence([WORK], toolchain=CODEGEN)[WORK].preparation()
        assert prepared is None or prepared.files == ()
        assert [problem.kind for problem in store.check()] == [kind]
        if prepared is None:
            demanded(store)
            assert state(store) is PreparationState.WANTED
