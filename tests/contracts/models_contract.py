"""Learned models of a store, and the trials that train them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.store_values import (
    OTHER_WORKLOAD,
    TARGET,
    TOOLCHAIN,
    WORKLOAD,
    WORKLOADS,
    Clock,
    a_record,
    register,
)
from tilewright.db import Store
from tilewright.db.errors import NotRegistered
from tilewright.db.values.moments import rfc3339
from tilewright.schedules.record import Toolchain, TuningRecord
from tilewright.schedules.target import Target

SETTING: dict[str, Any] = {"sketch": "plain", "knobs": {}}
MOCKED = Toolchain(codegen_version=0, llvmlite="simulated", llvm="abc")
RELATED = replace(TARGET, cpu="znver2")
OTHER_ISA = replace(TARGET, triple="aarch64-unknown-linux-gnu")


def trained(trial: int, secs: float = 1e-3, **changes: Any) -> TuningRecord:
    return a_record(trial, secs, setting=SETTING, prior_secs=1e-3, **changes)


class ModelsContract:
    """The newest model of a target is used. `damage(SQL)` edits behind the back of `store`."""

    def test_the_newest_model_counts_and_older_ones_go(self, store: Store) -> None:
        assert store.model(TARGET) is None
        keys = [store.add_model(TARGET.key, "", {"n": n}, {"samples": n}) for n in range(10)]
        found = store.model(TARGET)
        assert found is not None
        assert (found.key, found.document, found.quality) == (keys[9], {"n": 9}, {"samples": 9})
        store.add_model(TARGET.key, "", {"n": 7}, {"samples": 11})
        again = store.model(TARGET)
        assert again is not None
        assert (again.key, again.quality) == (keys[7], {"samples": 11})
        assert store.stats().tables["model"].rows == 8
        assert store.check() == []

    def test_a_repeated_search_finds_the_model_it_began_with(
        self, store: Store, clock: Clock
    ) -> None:
        first = store.add_model(TARGET.key, "", {"n": 1}, {})
        clock.advance(1)
        moment = rfc3339(clock.now)
        second = store.add_model(TARGET.key, "", {"n": 2}, {})
        found = [store.model(TARGET, "", before) for before in ("", moment)]
        assert [None if one is None else one.key for one in found] == [second, first]
        assert store.model(TARGET, "", "2000-01-01T00:00:00.000000Z") is None

    def test_models_of_mocked_timings_are_separate(self, store: Store) -> None:
        store.add_model(TARGET.key, "simulated:abc", {"n": 1}, {})
        assert store.model(TARGET) is None
        assert store.model(TARGET, "simulated:abc") is not None

    def test_a_model_needs_its_target(self, store: Store) -> None:
        with pytest.raises(NotRegistered, match="is not registered"):
            store.add_model("sha256:unknown", "", {}, {})

    def test_a_damaged_model_is_not_used_and_told(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        store.add_model(TARGET.key, "", {"n": 1}, {})
        damage("UPDATE model SET document = '{}'")
        assert store.model(TARGET) is None
        assert [problem.kind for problem in store.check()] == ["model"]
        store.add_model(TARGET.key, "", {"n": 1}, {})
        assert store.model(TARGET) is not None
        assert store.check() == []

    def test_successful_trials_with_a_setting_train(self, store: Store) -> None:
        register(store, OTHER_WORKLOAD)
        store.add([trained(1, 2e-3), trained(2, 1e-3), a_record(3), a_record(4, None)])
        store.add([trained(5, toolchain=MOCKED), trained(6, verified_level="imported")])
        store.add([trained(7, workload_key=OTHER_WORKLOAD)])
        tasks = store.training_tasks(TARGET.key, most_trials=100)
        assert [(task.workload, len(task.records)) for task in tasks] == [
            (WORKLOADS[OTHER_WORKLOAD].to_json(), 1),
            (WORKLOADS[WORKLOAD].to_json(), 2),
        ]
        secs = [record.result.run_secs_estimate for record in tasks[1].records]
        assert secs == [1e-3, 2e-3]
        (mocked,) = store.training_tasks(TARGET.key, "simulated:abc", most_trials=100)
        assert [record.trial for record in mocked.records] == [5]
        assert store.trained_targets() == [(TARGET.key, ""), (TARGET.key, "simulated:abc")]
        limited = store.training_tasks(TARGET.key, most_trials=2)
        assert sum(len(task.records) for task in limited) <= 2

    def test_related_targets_follow(self, store: Store) -> None:
        for target in (RELATED, OTHER_ISA):
            register(store, target=target)
            store.add([trained(1, target_key=target.key)])
        store.add([trained(2)])
        tasks = store.training_tasks(TARGET.key, most_trials=100)
        found = [(task.is_own, Target.from_json(task.target)) for task in tasks]
        assert found == [(True, TARGET), (False, RELATED)]

    def test_a_model_is_due_after_enough_new_trials(self, store: Store) -> None:
        store.add([trained(n, 1e-3 + 1e-6 * n) for n in range(199)])
        assert not store.model_state(TARGET.key).is_due
        store.add([trained(500), a_record(501, None)])
        state = store.model_state(TARGET.key)
        assert (state.trials, state.trained_on, state.is_due) == (200, 0, True)
        store.add_model(TARGET.key, "", {}, {"trials_stored": 200})
        assert not store.model_state(TARGET.key).is_due
        store.add([trained(600 + n, toolchain=TOOLCHAIN) for n in range(40)])
        assert store.model_state(TARGET.key).is_due
