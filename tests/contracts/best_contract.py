"""The best of a store: looked up, withdrawn, claimed, and given with all that an answer needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.store_values import (
    FILES,
    OTHER_TARGET,
    OTHER_WORKLOAD,
    TARGET,
    TOOLCHAIN,
    WORKLOAD,
    a_record,
    exported,
    full,
    promoted,
    register,
)
from tilewright.db import Store, StoredEvidence
from tilewright.db.errors import InvalidRecord, NotRegistered
from tilewright.db.values.records import Artefact, WorkloadEntry
from tilewright.schedules.record import MeasureResult, MeasureStatus, TuningRecord
from tilewright.schedules.target import Target


class BestContract:
    """Pointers to records, and what is read with them at one moment."""

    def test_the_best_on_other_machines_comes_with_what_they_are(self, store: Store) -> None:
        register(store, target=OTHER_TARGET)
        theirs = full(1, 1e-3, target_key=OTHER_TARGET.key)
        assert promoted(store, full(1, 2e-3))
        assert promoted(store, theirs)
        (elsewhere,) = store.best_elsewhere(WORKLOAD, TARGET.key)
        assert elsewhere.record == theirs
        assert Target.from_json(elsewhere.target_document) == OTHER_TARGET
        assert store.best_elsewhere(OTHER_WORKLOAD, TARGET.key) == []

    def test_a_withdrawn_record_is_followed_by_the_next(self, store: Store) -> None:
        slow, fast = full(1, 2e-3), full(2, 1e-3)
        assert promoted(store, slow)
        assert promoted(store, fast)
        assert store.withdraw(fast.key, "wrong at element 7") == slow
        assert not store.promote(fast)
        assert store.best(WORKLOAD, TARGET.key) == slow
        assert store.withdraw(slow.key, "wrong too") is None
        assert store.best(WORKLOAD, TARGET.key) is None
        moves = store.best_history(WORKLOAD, TARGET.key)
        assert [move.version for move in moves] == [1, 2, 3, 4]
        assert moves[2].reason == "withdrawn: wrong at element 7"
        assert moves[3].to_record_key is None
        assert store.check() == []
        assert promoted(store, full(3, 5e-3)), "and can be filled again"
        with pytest.raises(NotRegistered, match="nothing to withdraw"):
            store.withdraw("sha256:none", "")

    def test_what_failed_a_full_check_is_best_no_more(self, store: Store) -> None:
        """Whichever came first, and whatever its time: the record that passed, or the check that
        disproved its schedule."""
        slow, fast = full(1, 2e-3), full(2, 1e-3)
        assert promoted(store, slow)
        assert promoted(store, fast)
        wrong = MeasureResult(MeasureStatus.WRONG_RESULT, detail="element 7")
        store.add([replace(fast, result=wrong)])
        assert store.best(WORKLOAD, TARGET.key) == slow
        work = WORKLOAD, TARGET.key
        assert answer_of(store.evidence([work])[work])[2] == [slow]
        moves = store.best_history(WORKLOAD, TARGET.key)
        assert moves[-1].reason == "withdrawn: wrong_result: element 7"
        again = replace(fast, seed=1)
        assert not promoted(store, again), "as it was disproved"
        assert store.withdraw(slow.key, "wrong too") is None, "not the next, which is disproved"
        failed = store.full_checks(WORKLOAD, TARGET.key).refusal(fast.trace, fast.toolchain)
        assert str(failed) == "wrong_result: element 7"
        assert (
            store.full_checks(WORKLOAD, TARGET.key).refusal(full(3, 1e-3).trace, TOOLCHAIN) is None
        )
        assert promoted(store, replace(fast, toolchain=replace(TOOLCHAIN, codegen_version=2)))
        assert store.check() == []

    def test_what_a_machine_could_not_check_is_refused_until_it_passes(self, store: Store) -> None:
        record = full(1, 1e-3)
        late = MeasureResult(MeasureStatus.RUN_TIMEOUT, detail="over 2 s")
        store.add([replace(record, result=late)])
        refused = store.full_checks(WORKLOAD, TARGET.key).refusal(record.trace, TOOLCHAIN)
        assert str(refused) == "run_timeout: over 2 s"
        assert promoted(store, record)
        assert store.full_checks(WORKLOAD, TARGET.key).refusal(record.trace, TOOLCHAIN) is None
        store.add([replace(record, result=late, seed=1)])
        assert store.best(WORKLOAD, TARGET.key) == record

    def test_evidence_holds_what_speaks_against_schedules(self, store: Store) -> None:
        wrong = MeasureResult(MeasureStatus.WRONG_RESULT, detail="element 7")
        failed = replace(full(1, 1e-3), result=wrong)
        register(store, target=OTHER_TARGET)
        elsewhere = replace(failed, target_key=OTHER_TARGET.key)
        withdrawn = full(2, 1e-3)
        store.add([failed, elsewhere, withdrawn, full(3, 1e-3)])
        store.withdraw(withdrawn.key, "odd")
        work = WORKLOAD, TARGET.key
        for others in (False, True):
            evidence = store.evidence([work], elsewhere=others)[work]
            known = evidence.refusals(TARGET.key).known
            refused = {check.record_key for check in known.values() if not check.ok}
            assert refused == {failed.key, withdrawn.key}
            assert len(evidence.refusals(OTHER_TARGET.key).known) == others

    def test_evidence_holds_all_that_an_answer_needs(self, store: Store) -> None:
        record = full(1, 1e-3)
        assert promoted(store, full(2, 2e-3))
        assert promoted(store, record)
        files = store.add_artefacts(record.key, FILES)
        register(store, OTHER_WORKLOAD)
        works = [(work, TARGET.key) for work in (WORKLOAD, OTHER_WORKLOAD, "none")] * 400
        found = store.evidence([*works, (WORKLOAD, "none")])
        assert list(found) == [*works[:3], (WORKLOAD, "none")]
        known = store.workload(WORKLOAD), store.target(TARGET.key)
        assert answer_of(found[works[0]]) == (*known, [record], files)
        assert answer_of(found[works[1]]) == (store.workload(OTHER_WORKLOAD), known[1], [], [])
        assert answer_of(found[works[2]]) == (None, known[1], [], [])
        assert answer_of(found[WORKLOAD, "none"]) == (known[0], None, [], [])
        assert store.evidence([]) == {}

    @pytest.mark.parametrize(
        "change",
        [
            "record SET estimate_secs = 0.0005",
            "record SET document = replace(document, '0.001', '0.002')",
            "record SET object_sha256 = 'x'",
            "artefact SET bytes = 5",
            "workload SET flops = 7",
            "target SET document = '{}'",
        ],
    )
    def test_evidence_of_damaged_rows_says_nothing(
        self, store: Store, damage: Callable[[str], None], change: str
    ) -> None:
        work = WORKLOAD, TARGET.key
        assert promoted(store, full(1, 1e-3))
        files = store.add_artefacts(full(1, 1e-3).key, FILES)
        entry, target, records, before = answer_of(store.evidence([work])[work])
        assert (records, before) == ([full(1, 1e-3)], files)
        damage(f"UPDATE {change}")
        match change.split(maxsplit=1)[0]:
            case "record":
                records = []
            case "artefact":
                files = []
            case "workload":
                entry = None
            case _:
                target, records = None, []
        after = answer_of(store.evidence([work])[work])
        assert after == (entry, target, records, files if records else [])

    def test_evidence_follows_the_best(self, store: Store) -> None:
        work = WORKLOAD, TARGET.key
        for trial, secs in enumerate((3e-3, 2e-3, 1e-3), start=1):
            assert promoted(store, full(trial, secs))
            assert answer_of(store.evidence([work])[work])[2] == [full(trial, secs)]
        store.withdraw(full(3, 1e-3).key, "wrong")
        assert answer_of(store.evidence([work])[work])[2] == [full(2, 2e-3)]

    def test_a_claim_becomes_an_answer_once_it_is_verified_here(self, store: Store) -> None:
        slow, fast = full(1, 2e-3), full(2, 1e-3)
        store.import_(exported(WORKLOAD, [slow, fast, a_record(3, None)]))
        claims = store.claims(WORKLOAD, TARGET.key)
        assert [claim.trial for claim in claims] == [2, 1], "the fastest first, no failures"
        assert store.works_to_verify(TOOLCHAIN) == [(WORKLOAD, TARGET.key)]
        assert store.best(WORKLOAD, TARGET.key) is None
        own = replace(claims[0], verified_level="full", result=full(2, 1.5e-3).result)
        assert store.confirm(claims[0].key, own)
        assert store.best(WORKLOAD, TARGET.key) == own, "with the time that was measured here"
        assert store.claims(WORKLOAD, TARGET.key) == claims[1:]
        assert store.works_to_verify(TOOLCHAIN) == []
        assert store.confirm(claims[0].key, own), "again it changes nothing"
        store.withdraw(claims[1].key, "wrong at element 7")
        assert store.claims(WORKLOAD, TARGET.key) == []
        assert store.check() == []

    def test_a_confirmation_is_of_the_same_kernel_and_verified(self, store: Store) -> None:
        store.import_(exported(WORKLOAD, [full(1, 1e-3)]))
        (claim,) = store.claims(WORKLOAD, TARGET.key)
        own = replace(claim, verified_level="full")
        for changes, message in (
            ({"trace": []}, "another task or trace"),
            ({"threads": 2}, "another task or trace"),
            ({"verified_level": "quick"}, "must be verified in full"),
        ):
            with pytest.raises(InvalidRecord, match=message):
                store.confirm(claim.key, replace(own, **changes))
        store.add([own])
        for key in (own.key, "sha256:none"):
            with pytest.raises(NotRegistered, match="no claim with this key"):
                store.confirm(key, own)
        assert store.best(WORKLOAD, TARGET.key) is None


def answer_of(
    evidence: StoredEvidence,
) -> tuple[WorkloadEntry | None, dict[str, Any] | None, list[TuningRecord], list[Artefact]]:
    """The workload, the target, the best and its files, as far as their rows are intact."""
    bests = evidence.best()
    files = [file for best in bests for file in evidence.artefacts(best.key)]
    return evidence.entry(), evidence.target_document(), [best.record for best in bests], files

    def test_what_an_upgrade_made_slower_is_listed(self, store: Store) -> None:
        """By the full checks of one trace before and after, whatever was tuned since."""
        newer = replace(TOOLCHAIN, codegen_version=2)
        newest = replace(TOOLCHAIN, codegen_version=3)
        assert store.slower_after_upgrade() == []
        before = [full(1, 1e-3), full(2, 2e-3)]
        after = [full(1, 1.04e-3, toolchain=newer), full(2, 4e-3, toolchain=newer)]
        store.add([*before, full(1, 1.1e-3, seed=1), *after])
        assert store.slower_after_upgrade() == [], "the fastest one counts"
        last = full(1, 1.5e-3, toolchain=newest)
        store.add([last, full(3, 9e-3, toolchain=newest)])
        store.add([a_record(1, 9e-3, toolchain=replace(TOOLCHAIN, codegen_version=4))])
        mocked = replace(TOOLCHAIN, codegen_version=0)
        store.add([full(1, 1e-4, toolchain=mocked)])
        (found,) = store.slower_after_upgrade()
        assert (found.before, found.after) == (after[0], last)
        assert found.ratio == pytest.approx(1.5 / 1.04)
        assert (found.workload_key, found.target_key) == (WORKLOAD, TARGET.key)
        assert found.target["cpu"] == TARGET.cpu
        assert found.best_secs is None
        assert store.promote(last)
        assert store.slower_after_upgrade()[0].best_secs == 1.5e-3
        store.withdraw(last.key, "wrong")
        assert store.slower_after_upgrade() == []

    def test_the_largest_slowdown_is_first(self, store: Store) -> None:
        register(store, OTHER_WORKLOAD)
        newer = replace(TOOLCHAIN, llvmlite="0.51.0", llvm="23.1.0")
        for workload, ratio in ((WORKLOAD, 1.2), (OTHER_WORKLOAD, 1.4)):
            store.add([full(1, 1e-3, workload_key=workload)])
            store.add([full(1, ratio * 1e-3, workload_key=workload, toolchain=newer)])
        found = [one.workload_key for one in store.slower_after_upgrade()]
        assert found == [OTHER_WORKLOAD, WORKLOAD]
