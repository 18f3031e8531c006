"""The default strategy: a mixed opening, then simulated annealing on the cost model.

The trials of a run, in order: the prior's best candidates with different register tiles; uniform
samples of the space, because the prior's best candidates alone cannot show that the prior is wrong;
then batches proposed by the model, in which every fourth trial explores; later, half of every other
batch are neighbours of the fastest candidate, which need no model. The model decides how far to
trust the prior (`costmodel/gaussian.py`). The constants were chosen on the training machines of
`benchmarks/search_comparison.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2
from statistics import median

import numpy as np

from tilewright.costmodel.base import CostModel
from tilewright.costmodel.blend import BlendedModel
from tilewright.costmodel.prior import Prior
from tilewright.schedules.arrays import FloatArray, IntArray
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.schedules.target import Target

from ..adaptation import borrowed_samples, proven_elsewhere
from ..annealing_walk import Cooling, anneal
from ..base import Observation, SearchGoal
from ..batch import Scored, distinct_tiles, diverse, scored
from ..candidate_pool import CandidatePool
from ..ledger import Ledger, run_secs
from ..prior_ranking import PriorRanking, rank_by_prior
from ..setting_grid import Codes, SettingGrid, setting_grids
from ..structural_choices import structural_choices
from ..threading_choice import best_with_other_threading

OPENING = (4, 4)
"""Trials before the first model: the prior's best candidates, then candidates of other
structures."""

OTHER_CHOICES = 2
"""The number of candidates of the opening that differ from the default in a structural choice. The
others are uniform samples of the space."""

SMALL_BLOCKS, BLOCK = ((16, 2), (32, 4)), 8
"""Pairs (trials, size of blocks until then). Blocks are small at first, because early results teach
most; later blocks have size BLOCK."""

FIRST_DESCENT = 32
"""From this trial on, half of every other block are neighbours of the fastest candidates."""

KAPPA, MIN_KAPPA, KAPPA_HALVED_AFTER = 2.0, 0.3, 24
"""Optimism in sigmas: its initial value, its minimum, and the number of trials after which it
halves."""

CAUTION = 1.0
"""Pessimism in sigmas of the first choice from related trials."""

NOVELTY = 0.2
"""Score bonus for knob values new to a batch, in log2 units."""

EXPLORE_ONE_IN = 4
"""One trial in this number explores."""

AT_BOUND_RATIO = 1.03
SMALL_GAIN = 0.005
QUIET_TRIALS = 24
MIN_TRIALS = 32

PRIOR_BEATEN_RATIO = 1.01
"""If the best candidate is less than this factor faster than the prior's choice, the prior is
accurate for this workload."""

NEAR_BOUND_RATIO, MIN_TRIALS_NEAR_BOUND = 1.06, 16
"""If the prior is accurate, and the best time is this near the bound, fewer trials suffice."""

MIN_TRIALS_SPELLED = 8
"""Trials that are made even if another spelling of the computation had enough of them."""

ELITE_SIZE = 384


@dataclass(frozen=True, slots=True)
class AnnealingSettings:
    """The size of a round of annealing.

    `chains` chains make `steps` moves per round in each of `sketches` sketches: the most promising
    sketches, and one of the others in turn. Pools hold `pool` candidates over all sketches, `first`
    of them from the prior's ranking, and at most `most_numbers` knob values in total.
    """

    chains: int = 256
    steps: int = 4
    sketches: int = 2
    pool: int = 4096
    first: int = 2048
    most_numbers: int = 200_000


@dataclass(frozen=True, slots=True)
class _Elite:
    """The best candidates of one pool, best first, with their predictions and scores (higher is
    better)."""

    codes: Codes
    log2_secs: FloatArray
    sigma: FloatArray
    scores: FloatArray


class AnnealingStrategy:
    """The annealing strategy, a `SearchStrategy`; see the docstring of the module."""

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
        self.model: CostModel = model if model is not None else BlendedModel(space, goal.correction)
        self.ledger = Ledger()
        self._grids = setting_grids(space)
        self._pools = [CandidatePool(grid, self.model) for grid in self._grids]
        self._look: PriorRanking | None = None
        self._last_prior: Prior | None = None
        self._opening: list[Scored] = []
        self._has_others = False
        self._chains: dict[int, IntArray] = {}
        self._walks = 0
        self._fitted = -1
        self._last_promise = 0
        self.promised_secs: float | None = None
        self._corrected_at = 0
        self._own_choice: list[Candidate] = []
        same = {sample.candidate for sample in goal.spelled}
        others = borrowed_samples(self._grids, goal.related)
        self._borrowed = [*goal.spelled, *(b for b in others if b.candidate not in same)]
        self._proven = [sample.candidate for sample in proven_elsewhere(self._borrowed)]

    # -- SearchStrategy

    @property
    def predictions(self) -> Mapping[Candidate, float]:
        """The predictions of all proposed candidates.

        Predictions of the opening are the prior's, shifted by one common offset to the measured
        level, so that all predictions can be ranked together.
        """
        first = list(self.ledger.proposed)[: sum(OPENING)]
        opening = [c for c in first if c in self.ledger.predictions]
        told = ((c, run_secs(self.ledger.results[c])) for c in opening if c in self.ledger.results)
        misses = [log2(secs) - self.ledger.predictions[c] for c, secs in told if secs is not None]
        offset = median(misses) if misses else 0.0
        moved = {c: self.ledger.predictions[c] + offset for c in opening}
        return {**self.ledger.predictions, **moved}

    @property
    def prior_choice(self) -> Candidate:
        """The default schedule without trials of related tasks."""
        return self._first_look().default

    def source_of(self, candidate: Candidate) -> int:
        """Return the number of the related task that has a trial with this setting, 0 if none."""
        found = (b.source for b in self._borrowed if b.candidate == candidate)
        return next(found, 0)

    @property
    def prior_trust(self) -> float | None:
        self._refit()
        return self.model.prior_trust if isinstance(self.model, BlendedModel) else None

    @property
    def gain_over_prior(self) -> float | None:
        results = (self.ledger.results.get(candidate) for candidate in self._own_choice)
        own = min((s for s in map(run_secs, filter(None, results)) if s is not None), default=None)
        best = self.ledger.best_secs
        return None if own is None or best is None else own / best

    @property
    def stop_reason(self) -> str | None:
        best, bound = self.ledger.best_secs, self.goal.bound_secs
        if best is not None and bound is not None and best <= AT_BOUND_RATIO * bound:
            return f"within {AT_BOUND_RATIO - 1:.0%} of the bound: nothing worth its cost is left"
        done = len(self.ledger.results)
        near = best is not None and bound is not None and best <= NEAR_BOUND_RATIO * bound
        enough = MIN_TRIALS_NEAR_BOUND if near else MIN_TRIALS
        if self.goal.spelled:
            enough = max(enough - self.goal.spelled_trials, MIN_TRIALS_SPELLED)
        gain = self.gain_over_prior
        if gain is not None and gain < PRIOR_BEATEN_RATIO and done - self._corrected_at >= enough:
            gain = PRIOR_BEATEN_RATIO - 1
            first = "the best of another spelling" if self.goal.spelled else "the prior's choice"
            return f"nothing in {done} trials is {gain:.0%} faster than {first}"
        if done >= MIN_TRIALS and done - self._last_promise >= QUIET_TRIALS:
            return f"predicted gain under {SMALL_GAIN:.1%} for {QUIET_TRIALS} trials in a row"
        return None

    def ask(self, count: int) -> list[Candidate]:
        number = len(self.ledger.proposed) - self._corrected_at
        if number < self._opening_trials:
            own_choice = OPENING[0] + len(self._proven)
            end = own_choice if number < own_choice else sum(OPENING)
            batch = self._from_opening(number, min(end, self._opening_trials))
        else:
            number = len(self.ledger.proposed)
            batch = self._from_model(_block_end(number) - number)
        for item in batch[:count]:
            self.ledger.ask(item.candidate, item.log2_secs)
        return [item.candidate for item in batch[:count]]

    def resume(self, observations: Sequence[Observation]) -> None:
        """Continue after earlier trials. The first trials were the prior's choice.

        Chains start again, and the trials without a promising candidate are counted from the best
        trial.
        """
        self.ledger.resume(observations)
        order = list(self.ledger.proposed)
        self._own_choice = order[: OPENING[0]]
        self._last_promise = max((order.index(c) + 1 for c in self.ledger.fastest(1)), default=0)

    def tell(self, results: Sequence[Observation]) -> None:
        self.ledger.tell(results)

    def correct(self, target: Target) -> None:
        """Use the corrected probes. Results stay, and the choice of the corrected prior is tried
        next."""
        self.space = replace(self.space, target=target)
        if isinstance(self.model, BlendedModel):
            self.model = BlendedModel(self.space, self.goal.correction)
        self._grids = setting_grids(self.space)
        self._pools = [CandidatePool(grid, self.model) for grid in self._grids]
        self._look, self._opening, self._own_choice = None, [], []
        self._has_others = False
        self._chains, self._fitted = {}, -1
        self._corrected_at = self._last_promise = len(self.ledger.proposed)

    # -- the opening

    @property
    def _opening_trials(self) -> int:
        """The number of trials of the opening. Samples of the space are not repeated for a
        corrected prior, and are not needed if trials of related workloads show where the prior is
        wrong."""
        if self._borrowed:
            return OPENING[0] + len(self._proven)
        return OPENING[0] if self._corrected_at >= sum(OPENING) else sum(OPENING)

    def _first_look(self) -> PriorRanking:
        if self._look is None:
            keep = max(self._share(self.settings.first), 256)
            self._look = rank_by_prior(self.space, self._prior(), keep)
        return self._look

    def _prior(self) -> Prior:
        if self._last_prior is None or self._last_prior.space is not self.space:
            self._last_prior = Prior(self.space, self.goal.check, self.goal.correction)
        return self._last_prior

    def _from_opening(self, number: int, end: int) -> list[Scored]:
        """Return the trials `number` to `end` of the opening. The prior's choice is made at its
        start, and the other trials after those were measured."""
        own = OPENING[0] + len(self._proven)
        if not self._opening:
            self._opening = self._prior_best(OPENING[0])
            self._own_choice = [item.candidate for item in self._opening]
        if number >= own and not self._has_others:
            self._has_others = True
            others = self._opening_trials - len(self._opening)
            if others > OTHER_CHOICES:
                self._opening = self._opening + self._structural_choices()
            missing = self._opening_trials - len(self._opening)
            self._opening = self._opening + self._spread(self._opening, missing)
        left = [i for i in self._opening if i.candidate not in self.ledger.proposed]
        return left[: end - number] or self._from_model(end - number)

    def _structural_choices(self) -> list[Scored]:
        grids, prior, look = self._grids, self._prior(), self._first_look()
        return structural_choices(grids, prior, look, self._own_choice, OTHER_CHOICES)

    def _prior_best(self, count: int) -> list[Scored]:
        """Return the default schedule, the best schedule with the other threading if it may be
        faster, and the prior's best candidates with other register tiles."""
        look = self._first_look()
        if self._borrowed:
            return self._model_best(look, count)
        pool = [
            item
            for grid, codes, cost in zip(self._grids, look.codes, look.log2_secs, strict=True)
            for item in scored(grid, codes[:256], cost[:256], 0 * cost[:256], 0.0)
        ]
        pool.sort(key=lambda item: -item.score)
        first = Scored(look.default, pool[0].log2_secs if pool else 0.0, 0.0, 0.0)
        other = best_with_other_threading(self.space, self._prior(), look)
        begun = [first] if other is None else [first, other]
        rest = distinct_tiles(self.space, pool, count + 2)
        known = {item.candidate for item in begun}
        return [*begun, *(i for i in rest if i.candidate not in known)][:count]

    def _model_best(self, look: PriorRanking, count: int) -> list[Scored]:
        """Return the best candidates by the model of related trials with different register tiles,
        what is proven on other machines or for other spellings, and the prior's best candidate. The
        fastest schedule of another spelling is first."""
        rng = np.random.default_rng([self.goal.seed, 5])
        for pool, codes in zip(self._pools, look.codes, strict=True):
            if len(codes):
                pool.add(pool.grid.decode(codes))
            own = [b.candidate for b in self._borrowed if b.candidate.sketch == pool.grid.index]
            if own:
                pool.add(np.array([candidate.setting for candidate in own], np.int64))
        self._refit()
        best = distinct_tiles(self.space, self._best_predicted(-CAUTION, rng), count)
        if look.default not in {item.candidate for item in best}:
            best[count - 1 :] = self._scored_one(look.default)
        known = {item.candidate for item in best}
        proven = [i for c in self._proven if c not in known for i in self._scored_one(c)]
        found = [*best[:1], *proven, *best[1:]]
        same = [sample.candidate for sample in self.goal.spelled[:1]]
        return sorted(found, key=lambda item: item.candidate not in same)

    def _scored_one(self, candidate: Candidate) -> list[Scored]:
        setting = np.array([candidate.setting], np.int64)
        return self._score(self._grids[candidate.sketch], setting, 0.0)

    def _spread(self, others: Sequence[Scored], count: int) -> list[Scored]:
        """Return `count` candidates drawn from the sketches in turn, none of them among
        `others`."""
        rng = np.random.default_rng([self.goal.seed, 4])
        order = rng.permutation(len(self._grids))
        turns = (self._grids[int(order[turn % len(order)])] for turn in range(count))
        drawn = [(grid, grid.sample(rng, 1)) for grid in turns]
        found: dict[Candidate, Scored] = {}
        for grid in {grid.index: grid for grid, _ in drawn}.values():
            settings = np.concatenate([own for other, own in drawn if other is grid])
            found |= {item.candidate: item for item in self._score(grid, settings, 0.0)}
        known = {item.candidate for item in others}
        rows = ((grid.index, row) for grid, own in drawn for row in own.tolist())
        candidates = dict.fromkeys(Candidate(sketch, tuple(row)) for sketch, row in rows)
        return [found[candidate] for candidate in candidates if candidate not in known]

    # -- blocks

    def _from_model(self, count: int) -> list[Scored]:
        """Return the model's choice with exploring trials; in a descent block, neighbours first."""
        self._refit()
        number = len(self.ledger.proposed)
        kappa = max(KAPPA * 0.5 ** (number / KAPPA_HALVED_AFTER), MIN_KAPPA)
        rng = np.random.default_rng([self.goal.seed, 1, number])
        pool = self._new_only(self._best_predicted(kappa, rng)) or self._new_only(
            [
                item
                for grid in self._grids
                for item in self._score(grid, grid.sample(rng, 64), kappa)
            ]
        )
        self._judge(pool)
        if number >= FIRST_DESCENT and number // BLOCK % 2:
            steps = self._descent(kappa)[: count // 2]
            taken = {item.candidate for item in steps}
            others = [item for item in pool if item.candidate not in taken]
            return [*steps, *diverse(others, count - len(steps), NOVELTY)]
        return self._explored(diverse(pool, count, NOVELTY), pool, rng, kappa)

    def _explored(
        self, picked: list[Scored], pool: Sequence[Scored], rng: np.random.Generator, kappa: float
    ) -> list[Scored]:
        """Return `picked` with one trial in `EXPLORE_ONE_IN` replaced, alternately by the least
        certain good candidate and by the best of some random candidates."""
        result = list(picked)
        for place in range(len(picked)):
            turn, rest = divmod(len(self.ledger.proposed) + place, EXPLORE_ONE_IN)
            if rest != EXPLORE_ONE_IN - 1:
                continue
            taken = {item.candidate for item in result}
            others = [item for item in pool if item.candidate not in taken]
            if turn % 2 == 0 and others:
                result[place] = max(others, key=lambda item: item.sigma)
                continue
            grid = self._grids[int(rng.integers(len(self._grids)))]
            drawn = self._new_only(self._score(grid, grid.sample(rng, 16), kappa))
            fresh = [item for item in drawn if item.candidate not in taken]
            if fresh:
                result[place] = max(fresh, key=lambda item: item.score)
        return result

    def _descent(self, kappa: float) -> list[Scored]:
        """Return unmeasured neighbours of the three fastest candidates: the neighbours of the
        fastest first, sorted by score for each."""
        result: dict[Candidate, Scored] = {}
        for best in self.ledger.fastest(3):
            grid = self._grids[best.sketch]
            around = self._new_only(self._score(grid, grid.neighbours(best.setting), kappa))
            for item in sorted(around, key=lambda item: -item.score):
                result.setdefault(item.candidate, item)
        return list(result.values())

    # -- scoring

    def _refit(self) -> None:
        if self._fitted != len(self.ledger.results):
            self.model.fit(self.ledger.samples, self._borrowed)
            self._fitted = len(self.ledger.results)
            for pool in self._pools:
                pool.refitted()

    def _score(self, grid: SettingGrid, settings: IntArray, kappa: float) -> list[Scored]:
        if not len(settings):
            return []
        prediction = self.model.predict(grid.index, settings)
        codes = grid.encode(settings)
        return scored(grid, codes, prediction.log2_secs, prediction.sigma, kappa)

    def _new_only(self, items: Sequence[Scored]) -> list[Scored]:
        return [item for item in items if item.candidate not in self.ledger.proposed]

    def _best_predicted(self, kappa: float, rng: np.random.Generator) -> list[Scored]:
        """Return the elites of all sketches, best first, after annealing in some of the
        sketches."""
        for pool, codes in zip(self._pools, self._first_look().codes, strict=True):
            if not len(pool) and len(codes):
                pool.add(pool.grid.decode(codes))
        elites = [self._elite(pool, kappa) for pool in self._pools]
        order = sorted(
            (i for i, elite in enumerate(elites) if len(elite.scores)),
            key=lambda i: -elites[i].scores[0],
        )
        chosen = order[: self.settings.sketches - 1]
        rest = order[len(chosen) :]
        if rest:
            chosen.append(rest[self._walks % len(rest)])
        self._walks += 1
        for index in chosen:
            self._walk(self._pools[index], elites[index], kappa, rng)
            elites[index] = self._elite(self._pools[index], kappa)
        best = [
            item
            for pool, elite in zip(self._pools, elites, strict=True)
            for item in scored(pool.grid, elite.codes, elite.log2_secs, elite.sigma, kappa)
        ]
        return sorted(best, key=lambda item: -item.score)

    def _elite(self, pool: CandidatePool, kappa: float) -> _Elite:
        """Return the best candidates of a pool, optimistic by `kappa` sigmas. Drops the others if
        the pool is full."""
        prediction = pool.predict()
        optimistic = prediction.log2_secs - kappa * prediction.sigma
        order = np.lexsort((pool.codes, optimistic))
        best = order[: ELITE_SIZE + len(self.ledger.proposed)]
        mu, sigma = prediction.log2_secs[best], prediction.sigma[best]
        elite = _Elite(pool.codes[best], mu, sigma, kappa * sigma - mu)
        most = max(self._share(self.settings.pool), 2 * ELITE_SIZE)
        if len(pool) > most:
            pool.keep(order[:most])
        return elite

    def _share(self, count: int) -> int:
        """Return the share of one sketch in `count` candidates."""
        knobs = max([1, *(len(grid.sizes) for grid in self._grids)])
        return min(count, self.settings.most_numbers // knobs) // len(self._grids)

    def _walk(
        self, pool: CandidatePool, elite: _Elite, kappa: float, rng: np.random.Generator
    ) -> None:
        """Anneal from the neighbours of the fastest candidates, the elite, random settings, and the
        previous ends of the chains.

        The pool adds every setting that is scored.
        """
        grid, chains = pool.grid, self.settings.chains
        fastest = [c.setting for c in self.ledger.fastest(3) if c.sketch == grid.index]
        parts = [grid.neighbours(*fastest), grid.decode(elite.codes[: chains // 4])]
        parts.append(grid.sample(rng, chains // 4))
        kept = self._chains.get(grid.index)
        if kept is not None:
            parts.append(kept[rng.permutation(len(kept))])

        def score(settings: IntArray) -> FloatArray:
            return pool.score(settings, kappa)

        cooling = Cooling(steps=self.settings.steps, keep=1)
        result = anneal(grid, score, np.concatenate(parts)[: 2 * chains], rng, cooling)
        self._chains[grid.index] = result.chains[-chains:]

    def _judge(self, pool: Sequence[Scored]) -> None:
        """Record the trial if the model promises a gain worth its cost; see `stop_reason`."""
        best = self.ledger.best_secs
        if best is None:
            return
        promised = max((item.sigma - item.log2_secs for item in pool), default=-np.inf)
        self.promised_secs = 2.0 ** float(-promised) if np.isfinite(promised) else None
        gain = 1.0 - 2.0 ** (-promised) / best if np.isfinite(promised) else 0.0
        if gain >= SMALL_GAIN:
            self._last_promise = len(self.ledger.proposed)


def _block_end(number: int) -> int:
    """Return the number of trials at the end of the block that contains trial `number` (from 0)."""
    size = next((size for until, size in SMALL_BLOCKS if number < until), BLOCK)
    return (number // size + 1) * size


STRATEGY = AnnealingStrategy
