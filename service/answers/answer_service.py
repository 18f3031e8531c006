"""The components of the service that answer requests for the best schedule."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.db.errors import StoreError
from tilewright.service.answers.answer_cache import AnswerCache
from tilewright.service.answers.prepare_queue import PrepareQueue
from tilewright.service.answers.preparer_pool import PreparerPool
from tilewright.service.database_quota import DatabaseQuota
from tilewright.service.resolve.parsed_workloads import ParsedWorkloads
from tilewright.service.resolve.toolchains import toolchain, toolchain_name
from tilewright.tuner.process.host import cpu_affinity

if TYPE_CHECKING:
    from tilewright.db import Store
    from tilewright.service.settings import Settings

log = logging.getLogger("tilewright.answers")

MOST_PREPARERS = 4


@dataclass(frozen=True, slots=True)
class AnswerService:
    """The answer cache, the cache of parsed workloads, and the queue of preparations."""

    cache: AnswerCache
    parsed_workloads: ParsedWorkloads
    prepare_queue: PrepareQueue

    def start(self) -> None:
        """Start preparers for the preparations that wait in the database."""
        try:
            self.prepare_queue.waiting()
        except StoreError as error:  # the database may be usable at the next request
            log.warning("the waiting preparations are not known: %s", error)

    def close(self) -> None:
        """Stop the helper processes."""
        self.prepare_queue.preparers.close()


def make_answer_service(store: Store, settings: Settings) -> AnswerService:
    """Return the components for one application, under the installed toolchain."""
    here = toolchain()
    preparers = PreparerPool(
        store.url, preparer_count(settings.preparers), settings.json_log, settings.database_bytes
    )
    room = DatabaseQuota(store, settings.database_bytes)
    return AnswerService(
        AnswerCache(store, here),
        ParsedWorkloads(settings),
        PrepareQueue(store, toolchain_name(here), settings.limits, preparers, room),
    )


def preparer_count(requested: int | None) -> int:
    """Return the number of preparers: `requested`, or one for each CPU except the last, on which
    kernels are timed."""
    return max(1, min(len(cpu_affinity()) - 1, MOST_PREPARERS)) if requested is None else requested
