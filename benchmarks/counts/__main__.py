"""Whether sketches count what they do: their columns against recounts of lowered nests.

    python -m benchmarks.counts                              5,000 random settings
    python -m benchmarks.counts --settings 200 --kinds tile inner_product

prints a table by kind of sketch and column: how many counts are exact, within the stated bound of
`compare.BOUNDS`, and outside; the largest ratio either way; and an example of that. Exit code 1 if
a count is outside.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor

from .compare import BOUNDS, Found, Tally, compared, tallied
from .drawing import FAMILIES, drawn


def _one(place: tuple[str, str]) -> list[Found]:
    return [found for counted in drawn(*place) for found in compared(counted)]


def found_in(settings: int, seed: int, jobs: int) -> Iterator[Found]:
    """The counts of so many settings, drawn for all families in turn."""
    families = list(FAMILIES)
    places = [(families[n % len(families)], f"{seed} {n}") for n in range(settings)]
    with ProcessPoolExecutor(jobs) as pool:
        for number, found in enumerate(pool.map(_one, places, chunksize=16)):
            if number % 100 == 99:
                print(f"{number + 1} of {settings} settings", file=sys.stderr, flush=True)
            yield from found


def table(tallies: Mapping[tuple[str, str], Tally], examples: bool) -> str:
    """The tallies as text."""
    lines = [f"{'kind':11} {'column':21} {'exact':>6} {'within':>6} {'outside':>7}  bound  worst"]
    for (kind, column), tally in sorted(tallies.items()):
        worst = tally.worst
        assert worst is not None
        lines.append(
            f"{kind:11} {column:21} {tally.exact:6} {tally.within:6} {tally.outside:7}"
            f"  {BOUNDS.get(column, 1.0):5.2f}  {worst.ratio:.3g}"
        )
        if examples and tally.outside:
            lines.append(f"    said {worst.said:g}, found {worst.recounted:g}: {worst.where}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=5000, help="settings drawn")
    parser.add_argument("--seed", type=int, default=1, help="of the drawing")
    parser.add_argument("--kinds", nargs="*", default=[], help="kinds of sketches shown; all")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--no-examples", action="store_true", help="the table alone")
    asked = parser.parse_args()
    found = found_in(asked.settings, asked.seed, asked.jobs)
    shown = [each for each in found if not asked.kinds or each.kind in asked.kinds]
    tallies = tallied(shown)
    print(table(tallies, not asked.no_examples))
    return int(any(tally.outside for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
