"""The dashboard in a real browser: ask for a job, watch it end, open what it found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

MATMUL = "matmul:M=24,N=16,K=20"


def submit(tab: Page, served: str, workload: str = MATMUL, trials: int = 24) -> str:
    """Fill in the form and send it; the id of the job whose page then opens."""
    tab.goto(served)
    tab.get_by_label("Workload", exact=True).fill(workload)
    tab.get_by_label("Trials", exact=True).fill(str(trials))
    tab.get_by_label("Measured by").select_option("simulated:fast.json")
    tab.get_by_role("button", name="Tune").click()
    tab.wait_for_url(re.compile("/jobs/"))
    return tab.url.rpartition("/")[2]


def test_a_job_submitted_from_the_page_is_watched_to_its_end(tab: Page, served: str) -> None:
    submit(tab, served)
    tab.get_by_role("link", name="Open the record").wait_for()
    assert tab.locator("#facts .state").first.inner_text() == "succeeded"
    assert tab.locator("#curve canvas").count() == 1
    assert tab.locator("#parallel polyline").count() > 5
    assert tab.locator("#scatter circle").count() > 5
    assert tab.locator("#statuses tr").count() == 2
