"""Golden texts: what a printed nest, an assembly or a table looked like when last approved."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path


@dataclass(frozen=True, slots=True, eq=False)
class Golden:
    """Equal to the text kept in `path`; with `update`, takes over the text it is compared with.

    `assert to_text(nest) == golden`. A test with several texts names them: `golden("after")`.
    """

    path: Path
    update: bool

    def __call__(self, name: str) -> Golden:
        """The golden text `name` of the same test."""
        return Golden(
            self.path.with_name(f"{self.path.stem}.{name}{self.path.suffix}"), self.update
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str):
            return NotImplemented
        if self.update:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(ended(other), encoding="utf-8")
        return self.text() == ended(other)

    def __hash__(self) -> int:
        return hash(self.path)

    def text(self) -> str | None:
        """What is kept, or None if nothing is."""
        return self.path.read_text(encoding="utf-8") if self.path.exists() else None

    def explain(self, found: str) -> list[str]:
        """Lines that say how `found` differs from what is kept, and what to do."""
        kept = self.text()
        hint = "run pytest with --update-golden and read the diff to approve it"
        if kept is None:
            return [f"no golden text {self.path}; {hint}", *found.splitlines()]
        sides = (kept.splitlines(), ended(found).splitlines())
        diff = unified_diff(*sides, "golden", "found", n=2, lineterm="")
        return [f"differs from golden text {self.path}; {hint}", *diff]


def ended(text: str) -> str:
    """`text` with one newline at its end, as a file has."""
    return text.rstrip("\n") + "\n"


def golden_path(root: Path, test_file: Path, test_name: str) -> Path:
    """Where the text of a test is kept: one folder a test file, one file a test."""
    return root / test_file.stem / (re.sub(r"[^\w.=-]+", "-", test_name).strip("-") + ".txt")
