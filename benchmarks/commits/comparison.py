"""A run: which steps are missing in the results, and what each of them measures and keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.commits import latency, racing
from benchmarks.commits.making import Makers, described
from benchmarks.commits.rows import Row, rows
from benchmarks.commits.trees import ROOT, SIDES, Side, TreeError, unpacked
from benchmarks.suite import machine
from benchmarks.suite.crew import Crew, RaceError
from benchmarks.suite.race import build_library
from benchmarks.suite.results import Result, ResultsFile, now

ROLES = {"race": ("best",), "proposals": ("best", "proposal")}
"""The kernels of each commit that a part races."""
LATENCY = "latency"
PARTS = (*ROLES, LATENCY)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is asked for. `trials` a tuning, `rounds` a race at most, `pairs` of processes."""

    parts: tuple[str, ...]
    rows: tuple[Row, ...]
    threads: tuple[int, ...]
    seeds: tuple[int, ...]
    trials: int
    rounds: int
    pairs: int


@dataclass(frozen=True, slots=True)
class Place:
    """A row on a number of threads, tuned with a seed."""

    row: Row
    threads: int
    seed: int

    def key(self, part: str) -> str:
        return f"{part}/{self.row.name}/{self.threads}t/{self.seed}"

    def to_json(self) -> dict[str, Any]:
        return {
            "row": self.row.name,
            "family": self.row.family,
            "threads": self.threads,
            "seed": self.seed,
        }


@dataclass(frozen=True, slots=True)
class Step:
    """Something that is missing. `run` measures and keeps it, and says in a few words what came
    out; it is given the number of the step, by which the commits take turns in going first."""

    key: str
    run: Callable[[int], str]


class Comparison:
    """One run on one machine. A context manager; what it needs to go on stands beside the results:
    both trees, the description of the machine that both are given, and the kernels."""

    def __init__(self, plan: Plan, commits: Mapping[str, str], results_file: Path) -> None:
        """`commits`: the full names of the `old` and the `new` one. TreeError if the file holds
        results of others, or of other budgets."""
        self.busy_share = 0.0
        self._plan = plan
        self._results = ResultsFile(results_file)
        _refuse_others(self._results, commits, plan.trials)
        self._commits = commits
        self._work = results_file.with_suffix(".work")
        self._stack = ExitStack()

    def __enter__(self) -> Comparison:
        work = self._work
        self._sides = {
            name: Side(name, key, unpacked(key, work / "trees"), work / name)
            for name, key in self._commits.items()
        }
        self._targets = described(self._sides, work)
        self._target = json.loads(self._targets["new"].read_text())
        makers = Makers(self._sides, self._targets, work / "objects")
        self._makers = self._stack.enter_context(makers)
        self._crew = self._stack.enter_context(Crew(work / "crew"))
        self._session = self._results.begin(
            {
                **machine.describe(self._target, ROOT),
                "commit": self._commits["new"],
                "commits": dict(self._commits),
                "trials": self._plan.trials,
            }
        )
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def missing(self) -> list[Step]:
        """All that the plan asks for and the results lack."""
        return [*self._latency_steps(), *self._kernel_steps()]

    def _known(self, key: str) -> dict[str, Any] | None:
        """The figures stored under `key`, None if there are none."""
        result = self._results.rows.get(key)
        return None if result is None or result.failed is not None else result.data

    def _keep(self, key: str, data: dict[str, Any]) -> None:
        self._results.add(Result(key, now(), self._session, self.busy_share, data))

    def _workload_file(self, row: Row) -> Path:
        """The document of a row."""
        file = self._work / "workloads" / f"{row.workload.key.removeprefix('sha256:')[:16]}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(row.workload.to_json()))
        return file

    # -- kernels

    def _kernel_steps(self) -> Iterator[Step]:
        wanted = [part for part in self._plan.parts if part in ROLES]
        for seed in self._plan.seeds:
            for row in self._plan.rows:
                for threads in self._plan.threads:
                    place = Place(row, threads, seed)
                    parts = [part for part in wanted if self._known(place.key(part)) is None]
                    if parts:
                        key = f"{row.name}, {threads}t, seed {seed}"
                        yield Step(key, partial(self._compare, place, parts))

    def _compare(self, place: Place, parts: Sequence[str], number: int) -> str:
        try:
            figures = self._raced(place, self._made(place, number), parts)
        except RaceError as error:
            for part in parts:
                self._keep(place.key(part), {**place.to_json(), "failed": str(error)})
            return f"FAILED: {error}"
        for part, data in figures.items():
            self._keep(place.key(part), data)
        return _said(list(figures.values())[-1])

    def _made(self, place: Place, number: int) -> dict[str, Any]:
        """Both commits' kernels, made now unless their objects are still there."""
        key = place.key("kernels")
        known = self._known(key)
        if known is not None and self._objects_exist(known):
            return known
        order = _order(number)
        made = self._makers.make(place.row, place.threads, self._plan.trials, place.seed, order)
        data = {**place.to_json(), "order": list(order), **made}
        self._keep(key, data)
        return data

    def _objects_exist(self, made: Mapping[str, Any]) -> bool:
        roles = ROLES["proposals"]
        return all(self._object(made[side][role]).exists() for side in SIDES for role in roles)

    def _object(self, kernel: Mapping[str, Any]) -> Path:
        return self._work / "objects" / f"{kernel['object']}.o"

    def _raced(
        self, place: Place, made: Mapping[str, Any], parts: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        """One race for all `parts`, whose kernels are called by their digests in its rounds: what
        is the same machine code takes part once, and alone does not race at all."""
        objects = {part: _objects(made, ROLES[part]) for part in parts}
        kernels = {
            made[side][role]["object"]: made[side][role]
            for part in parts
            for role in ROLES[part]
            for side in SIDES
        }
        race = self._race(place, kernels) if len(kernels) > 1 else racing.Race((), 0)
        return {
            part: {
                **place.to_json(),
                "objects": named,
                "rounds": [
                    {name: secs for name, secs in each.items() if name in named.values()}
                    for each in race.rounds
                ],
                "left_out": race.left_out,
            }
            for part, named in objects.items()
        }

    def _race(self, place: Place, kernels: Mapping[str, Mapping[str, Any]]) -> racing.Race:
        arguments = len(place.row.workload.arguments)
        entries = {}
        for name, kernel in kernels.items():
            library = build_library(self._object(kernel), arguments, kernel["symbol"])
            entries[name] = {"library": str(library), "workspace_bytes": kernel["workspace_bytes"]}
        return racing.race(
            self._crew, self._workload_file(place.row), entries, self._target,
            threads=place.threads, rounds=self._plan.rounds,
        )  # fmt: skip

    # -- latency

    def _latency_steps(self) -> Iterator[Step]:
        by_name = {row.name: row for row in rows()}  # its rows are fixed
        if LATENCY not in self._plan.parts:
            return
        for kind, names in latency.ROWS.items():
            for name in names:
                question = latency.Question(kind, name, self._workload_file(by_name[name]))
                warm = True  # the first process of a tree writes its bytecode
                for pair in range(self._plan.pairs):
                    key = f"{LATENCY}/{kind}/{name}/{pair}"
                    if self._known(key) is None:
                        yield Step(key, partial(self._pair, question, key, pair, warm))
                        warm = False

    def _pair(self, question: latency.Question, key: str, pair: int, warm: bool, _: int) -> str:
        order = _order(pair)
        for _ in range(2 if warm else 1):
            data = latency.pair(question, self._sides, self._targets, order)
        self._keep(key, data)
        figures = [(s, name, value) for s in SIDES for name, value in data[s].items()]
        return ", ".join(f"{side} {name} {value:.1f}" for side, name, value in figures)


def _order(number: int) -> tuple[str, ...]:
    """Who goes first, in turn."""
    return SIDES if number % 2 == 0 else SIDES[::-1]


def _objects(made: Mapping[str, Any], roles: Sequence[str]) -> dict[str, str]:
    """`old best`, `new best`, ... and the digests of these kernels' objects."""
    return {f"{side} {role}": made[side][role]["object"] for role in roles for side in SIDES}


def _said(data: Mapping[str, Any]) -> str:
    """The time of each kernel, for whoever watches."""
    objects, rounds = data["objects"], data["rounds"]
    if not rounds:
        return "one and the same object"
    middle = {n: sorted(each[n] for each in rounds)[len(rounds) // 2] for n in rounds[0]}
    return ", ".join(f"{role} {1e6 * middle[name]:.4g} us" for role, name in objects.items())


def _refuse_others(results: ResultsFile, commits: Mapping[str, str], trials: int) -> None:
    for known in results.sessions.values():
        if known.get("commits") != commits or known.get("trials") != trials:
            raise TreeError(
                "the results there are of other commits or trials: "
                f"{known.get('commits')}, {known.get('trials')}; take another file"
            )
