"""Everything that answers questions for the best, made once for an application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.answers.book import AnswerBook
from service.resolve.spelled import SpelledWorkloads
from service.resolve.toolchains import toolchain

if TYPE_CHECKING:
    from db import Store
    from service.settings import Settings


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers given before, the workloads read before."""

    book: AnswerBook
    spelled: SpelledWorkloads


def answers_of(store: Store, settings: Settings) -> Answers:
    """What an application answers with, under the toolchain installed here."""
    return Answers(AnswerBook(store, toolchain()), SpelledWorkloads(settings))
