"""The default strategy: prior first, then simulated annealing on the cost model, then descent.

The trials of a run, in order: the prior's best and its best with other register tiles; then blocks
of eight proposed by the model; from the fifth block on, every other one half neighbours of the
fastest measured so far. Small spaces are scored in full instead of walked. (On the synthetic
landscapes of `tests/synthetic_machine.py` a longer opening and earlier descent were both worse.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2
from statistics import median

import numpy as np

from costmodel.base import CostModel, Description
from costmodel.model import ResidualModel
from costmodel.prior import Prior
from schedules.space import Candidate, FloatArray, IntArray, ScheduleSpace

from .base import SearchGoal, Told
from .batch import Scored, distinct_tiles, diverse, scored
from .chains import Cooling, anneal
from .first_look import FirstLook, first_look
from .lattice import Lattice, lattices
from .ledger import Ledger, run_secs

PRIOR_BLOCKS = (4, 4)
"""Trials before the first model: a few for a quick first answer, then other register tiles."""

BLOCK = 8
FIRST_DESCENT = 4
DESCENT_SHARE = 2
KAPPAS = (2.0, 1.5, 1.0, 0.7, 0.5, 0.3)
"""Optimism in sigmas, by block; 0.1 from then on."""

NOVELTY = (0.3, 0.2, 0.1)
"""Bonus for knob values new to a batch, log2 units, by block; 0.02 from then on."""

CLOSE_TO_BOUND = 1.03
SMALL_GAIN = 0.005
QUIET_BLOCKS = 2
ENOUGH_TRIALS = 32
ELITE = 384


@dataclass(frozen=True, slots=True)
class AnnealingSettings:
    """`chains` walk each of `sketches` sketches a round, the most promising ones and one in turn;
    `pool` codes, over all sketches, are kept from the first look."""

    chains: int = 384
    steps: int = 12
    sketches: int = 2
    pool: int = 24576


class AnnealingStrategy:
    """`SearchStrategy`, see the module's docstring."""

    name = "annealing"

    def __init__(
        self,
        space: ScheduleSpace,
        goal: SearchGoal,
        model: CostModel | None = None,
        settings: AnnealingSettings = AnnealingSettings(),
    ) -> None:
        self.space = space
        self.goal = goal
        self.settings = settings
        self.model: CostModel = model if model is not None else ResidualModel(space)
        self.ledger = Ledger()
        self._grids = lattices(space)
        self._look: FirstLook | None = None
        self._opening: list[Scored] = []
        self._chains: dict[int, IntArray] = {}
        self._elites: dict[int, IntArray] = {}
        self._pools: dict[int, Description] = {}
        self._walks = 0
        self._fitted = -1
        self._quiet_blocks = 0

    # -- SearchStrategy

    @property
    def predictions(self) -> Mapping[Candidate, float]:
        """Those of the opening are the bare prior's; they are moved by one common offset to the
        level that was measured, so that all can be ranked together."""
        opening = list(self.ledger.asked)[: sum(PRIOR_BLOCKS)]
        told = ((c, run_secs(self.ledger.results[c])) for c in opening if c in self.ledger.results)
        misses = [log2(secs) - self.ledger.predictions[c] for c, secs in told if secs is not None]
        offset = median(misses) if misses else 0.0
        moved = {c: self.ledger.predictions[c] + offset for c in opening}
        return {**self.ledger.predictions, **moved}

    @property
    def stop_reason(self) -> str | None:
        best, bound = self.ledger.best_secs, self.goal.bound_secs
        if best is not None and bound is not None and best <= CLOSE_TO_BOUND * bound:
            return f"within {CLOSE_TO_BOUND - 1:.0%} of the bound: nothing worth its cost is left"
        if self._quiet_blocks >= QUIET_BLOCKS and len(self.ledger.results) >= ENOUGH_TRIALS:
            return f"predicted gain under {SMALL_GAIN:.1%} for {QUIET_BLOCKS} rounds in a row"
        return None

    def ask(self, count: int) -> list[Candidate]:
        number = len(self.ledger.asked)
        if number < sum(PRIOR_BLOCKS):
            end = PRIOR_BLOCKS[0] if number < PRIOR_BLOCKS[0] else sum(PRIOR_BLOCKS)
            batch = self._from_prior(number, end)
        else:
            block, done = divmod(number - sum(PRIOR_BLOCKS), BLOCK)
            batch = self._from_model(block, BLOCK - done)
        for item in batch[:count]:
            self.ledger.ask(item.candidate, item.log2_secs)
        return [item.candidate for item in batch[:count]]

    def tell(self, results: Sequence[Told]) -> None:
        self.ledger.tell(results)

    # -- blocks

    def _first_look(self) -> FirstLook:
        if self._look is None:
            keep = max(self.settings.pool // len(self._grids), 1024)
            self._look = first_look(self.space, Prior(self.space), keep)
        return self._look

    def _from_prior(self, number: int, end: int) -> list[Scored]:
        """Trials `number` to `end` of the opening, which is chosen once."""
        if not self._opening:
            look = self._first_look()
            pool = [
                item
                for grid, codes, cost in zip(self._grids, look.codes, look.log2_secs, strict=True)
                for item in scored(grid, codes[:256], cost[:256], 0 * cost[:256], 0.0)
            ]
            pool.sort(key=lambda item: -item.score)
            first = Scored(look.default, pool[0].log2_secs if pool else 0.0, 0.0, 0.0)
            rest = distinct_tiles(self.space, pool, sum(PRIOR_BLOCKS))
            self._opening = [first, *(i for i in rest if i.candidate != look.default)]
        left = [i for i in self._opening if i.candidate not in self.ledger.asked]
        return left[: end - number] or self._from_model(0, end - number)

    def _from_model(self, block: int, count: int) -> list[Scored]:
        """The model's choice, with one explorer; in a descent block, half neighbours first."""
        self._refit()
        kappa = KAPPAS[block] if block < len(KAPPAS) else 0.1
        novelty = NOVELTY[block] if block < len(NOVELTY) else 0.02
        rng = np.random.default_rng([self.goal.seed, 1, len(self.ledger.asked)])
        pool = self._unasked(self._best_predicted(kappa, rng))
        self._judge(pool)
        if block >= FIRST_DESCENT and block % 2 == 0:
            steps = self._descent(kappa)[: count // DESCENT_SHARE]
            taken = {i.candidate for i in steps}
            pool = [i for i in pool if i.candidate not in taken]
            return [*steps, *diverse(pool, count - len(steps), novelty)]
        picked = diverse(pool, count - 1, novelty)
        return self._with_explorer(picked, pool, rng, kappa, block)

    def _with_explorer(
        self,
        picked: list[Scored],
        pool: Sequence[Scored],
        rng: np.random.Generator,
        kappa: float,
        block: int,
    ) -> list[Scored]:
        """The batch and one more: the least certain good candidate, or one drawn at random."""
        taken = {item.candidate for item in picked}
        others = [item for item in pool if item.candidate not in taken]
        if block % 2 == 0 and others:
            return [*picked, max(others, key=lambda item: item.sigma)]
        grid = self._grids[int(rng.integers(len(self._grids)))]
        drawn = self._score(grid, grid.encode(grid.sample(rng, 16)), kappa)
        fresh = [i for i in self._unasked(drawn) if i.candidate not in taken]
        return [*picked, *(fresh or others)[:1]]

    def _descent(self, kappa: float) -> list[Scored]:
        """Unmeasured neighbours of the three fastest; the fastest one's first, by score."""
        result: dict[Candidate, Scored] = {}
        for best in self.ledger.fastest(3):
            grid = self._grids[best.sketch]
            near = grid.neighbours(best.setting)
            if len(near):
                around = self._unasked(self._score(grid, grid.encode(near), kappa))
                for item in sorted(around, key=lambda item: -item.score):
                    result.setdefault(item.candidate, item)
        return list(result.values())

    # -- scoring

    def _refit(self) -> None:
        if self._fitted != len(self.ledger.results):
            self.model.fit(self.ledger.samples)
            self._fitted = len(self.ledger.results)

    def _score(self, grid: Lattice, codes: IntArray, kappa: float) -> list[Scored]:
        if not len(codes):
            return []
        prediction = self.model.predict(grid.index, grid.decode(codes))
        return scored(grid, codes, prediction.log2_secs, prediction.sigma, kappa)

    def _unasked(self, items: Sequence[Scored]) -> list[Scored]:
        return [item for item in items if item.candidate not in self.ledger.asked]

    def _best_predicted(self, kappa: float, rng: np.random.Generator) -> list[Scored]:
        """The elite of every sketch by the model, best first."""
        look = self._first_look()
        if look.feasible is not None:
            found = [
                self._elite(grid, codes, self._pool(grid, codes), kappa)
                + self._elite(grid, *self._nearby(grid, codes, rng), kappa)
                for grid, codes in zip(self._grids, look.codes, strict=True)
            ]
        else:
            found = self._walked(look, kappa, rng)
        return sorted((i for items in found for i in items), key=lambda item: -item.score)

    def _pool(self, grid: Lattice, codes: IntArray) -> Description:
        """What the prior liked of a sketch, described once for all rounds."""
        if grid.index not in self._pools:
            self._pools[grid.index] = self.model.describe(grid.index, grid.decode(codes))
        return self._pools[grid.index]

    def _nearby(
        self, grid: Lattice, known: IntArray, rng: np.random.Generator
    ) -> tuple[IntArray, Description]:
        """What lies near the fastest measured and is not among the `known` codes."""
        near = grid.encode(self._around_best(grid, rng, 512))
        codes = np.setdiff1d(near, known)
        return codes, self.model.describe(grid.index, grid.decode(codes))

    def _walked(
        self, look: FirstLook, kappa: float, rng: np.random.Generator
    ) -> list[list[Scored]]:
        """Elites after annealing the most promising sketches; the others keep theirs."""
        elites = [
            self._elite_of(grid, self._elites.get(grid.index, codes[:ELITE]), kappa)
            for grid, codes in zip(self._grids, look.codes, strict=True)
        ]
        alive = [i for i, items in enumerate(elites) if items]
        order = sorted(alive, key=lambda i: -elites[i][0].score)
        chosen = order[: self.settings.sketches - 1]
        rest = order[len(chosen) :]
        if rest:
            chosen.append(rest[self._walks % len(rest)])
        self._walks += 1
        for index in chosen:
            elites[index] = self._annealed(self._grids[index], look.codes[index], kappa, rng)
            codes = self._grids[index].encode(
                np.array([i.candidate.setting for i in elites[index]], np.int64)
            )
            self._elites[index] = np.sort(codes)
        return elites

    def _elite(
        self, grid: Lattice, codes: IntArray, described: Description, kappa: float
    ) -> list[Scored]:
        """The best described codes by the model, optimistic by `kappa` sigmas."""
        if not len(codes):
            return []
        prediction = self.model.predict_from(described)
        optimistic = prediction.log2_secs - kappa * prediction.sigma
        best = np.lexsort((codes, optimistic))[:ELITE]
        mu: FloatArray = prediction.log2_secs[best]
        return scored(grid, codes[best], mu, prediction.sigma[best], kappa)

    def _elite_of(self, grid: Lattice, codes: IntArray, kappa: float) -> list[Scored]:
        return self._elite(grid, codes, self.model.describe(grid.index, grid.decode(codes)), kappa)

    def _annealed(
        self, grid: Lattice, known: IntArray, kappa: float, rng: np.random.Generator
    ) -> list[Scored]:
        chains = self.settings.chains

        def score(settings: IntArray) -> FloatArray:
            prediction = self.model.predict(grid.index, settings)
            return kappa * prediction.sigma - prediction.log2_secs

        parts = [
            self._around_best(grid, rng, chains // 4),
            grid.decode(known[: chains // 4]),
            grid.sample(rng, chains // 4),
        ]
        kept = self._chains.get(grid.index)
        if kept is not None:
            parts.insert(0, kept[rng.permutation(len(kept))[: chains // 2]])
        start = np.concatenate(parts)[:chains]
        result = anneal(grid, score, start, rng, Cooling(steps=self.settings.steps, keep=ELITE))
        self._chains[grid.index] = result.chains
        return self._elite_of(grid, result.codes, kappa)

    def _around_best(self, grid: Lattice, rng: np.random.Generator, count: int) -> IntArray:
        best = [c.setting for c in self.ledger.fastest(8) if c.sketch == grid.index]
        if not best:
            return np.empty((0, len(grid.sizes)), np.int64)
        return grid.near(np.array(best, np.int64), rng, count)

    def _judge(self, pool: Sequence[Scored]) -> None:
        """Count rounds in which the model promises next to nothing; see `stop_reason`."""
        best = self.ledger.best_secs
        if best is None:
            return
        promised = max((item.score for item in pool), default=-np.inf)
        gain = 1.0 - 2.0 ** (-promised) / best if np.isfinite(promised) else 0.0
        self._quiet_blocks = self._quiet_blocks + 1 if gain < SMALL_GAIN else 0
