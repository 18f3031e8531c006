"""The dashboard in a real browser: ask for a job, watch it end, open what it found, compare.

On machines that do not exist; skipped where there is no Chromium, which the summary then says.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

MATMUL = "matmul:M=24,N=16,K=20"
LONG_NAME = "conv2d_nhwc:N=1,H=8,W=8,CI=8,CO=8,K=3,stride=1,pad=1"
BACKGROUND = "getComputedStyle(document.documentElement).backgroundColor"


def submit(
    tab: Page, served: str, workload: str = MATMUL, trials: int = 24, *, endless: bool = False
) -> str:
    """Fill in the form and send it; the id of the job whose page then opens. An `endless` one
    takes minutes, and is not over before that: random search never finds that it may stop."""
    tab.goto(served)
    tab.get_by_role("link", name="New job").first.click()
    tab.get_by_label("Workload", exact=True).fill(workload)
    tab.get_by_label("Trials", exact=True).fill("20000" if endless else str(trials))
    tab.get_by_label("Measured by").select_option(f"simulated:{'slow' if endless else 'fast'}.json")
    if endless:
        tab.get_by_text("Target, strategy and seed").click()
        tab.locator("#strategy").select_option("random")
    tab.get_by_role("button", name="Tune").click()
    tab.wait_for_url(re.compile("/jobs/"))
    return tab.url.rpartition("/")[2]


def submit_many(tab: Page, served: str) -> str:
    """Send a job of two workloads, one with a long name; the path of its page, with all tasks."""
    workloads = [{"workload": MATMUL}, {"workload": LONG_NAME, "weight": 2}]
    body = {"workloads": workloads, "measurer": "simulated:fast.json", "budget": {"trials": 8}}
    answer = tab.request.post(f"{served}/v1/jobs", data=body)
    assert answer.ok, answer.text()
    tab.goto(f"{served}/jobs/{answer.json()['id']}")
    tab.get_by_text("every task has ended").wait_for()
    return tab.url.removeprefix(served)


def wait_for_result(tab: Page) -> None:
    tab.get_by_role("link", name="Open the record").wait_for()


def test_a_job_is_submitted_watched_to_its_end_opened_and_compared(tab: Page, served: str) -> None:
    job_id = submit(tab, served)
    wait_for_result(tab)
    assert tab.locator("#facts .state").first.inner_text() == "succeeded"
    assert tab.locator("#curve canvas").count() == 1
    assert tab.locator("#parallel polyline").count() > 5
    assert tab.locator("#scatter circle").count() > 5
    statuses = dict(
        row.split() for row in tab.locator("#statuses tr").all_inner_texts() if "ok" in row
    )
    assert 5 < int(statuses["ok"]) <= 24
    # This machine's default may be among the schedules that the simulated one lets time out.
    default = tab.request.get(f"{served}/v1/jobs/{job_id}").json()["result"]["default"]
    timed = default is not None and default["run_secs"] is not None
    assert tab.locator("svg.roofline circle").count() == 1 + timed

    tab.get_by_role("link", name="Open the record").click()
    tab.wait_for_url(re.compile("/records/"))
    assert MATMUL in tab.locator(".copy pre").first.inner_text()
    for part, sign in (("#nests", "for "), ("#assembly", "Marked: the hot loop")):
        tab.locator(part).scroll_into_view_if_needed()
        tab.locator(part).get_by_text(sign).first.wait_for()
    tab.locator("#roofline").scroll_into_view_if_needed()
    tab.locator("#roofline svg").wait_for()
    tab.get_by_role("link", name="compare").first.click()
    tab.wait_for_url(re.compile("/compare"))
    assert "times as fast" in tab.locator("main").inner_text()

    tab.goto(f"{served}/jobs/{job_id}")
    for number in (0, 2):
        tab.locator("#fastest input[type=checkbox]").nth(number).check()
    tab.get_by_role("button", name="Compare two").click()
    tab.wait_for_url(re.compile(r"/compare\?a="))
    assert "Two records" in tab.locator("h1").inner_text()


def test_two_jobs_are_drawn_together_and_all_trials_sorted_and_exported(
    tab: Page, served: str
) -> None:
    first = submit(tab, served, "matmul:M=40,N=48,K=32")
    wait_for_result(tab)
    tab.goto(f"{served}/jobs/new?workload=matmul:M=40,N=48,K=32&trials=16&seed=7")
    tab.get_by_label("Measured by").select_option("simulated:fast.json")
    tab.get_by_role("button", name="Tune").click()
    wait_for_result(tab)
    tab.locator("#importance").scroll_into_view_if_needed()
    tab.locator("#importance table, #importance .none").first.wait_for()
    assert "Decided by" in tab.locator("#result").inner_text()

    tab.get_by_label("Another job of this workload").select_option(first)
    tab.get_by_role("button", name="Compare jobs").click()
    tab.wait_for_url(re.compile(r"/jobs/compare\?a="))
    tab.locator("#both canvas").wait_for()
    assert "as fast as the best of the other" in tab.locator("#both-note").inner_text()
    tab.get_by_role("button", name="by time").click()
    assert tab.locator("#by-time").get_attribute("aria-pressed") == "true"
    assert tab.locator("#both canvas").count() == 1

    tab.goto(f"{served}/jobs/{first}")
    tab.get_by_role("link", name="All trials").click()
    tab.wait_for_url(re.compile("/trials$"))
    tab.get_by_role("link", name="Per call").click()
    tab.wait_for_url(re.compile("sort=time"))
    assert tab.locator("th[aria-sort=ascending]").inner_text().startswith("Per call")
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Export CSV").click()
    assert download.value.suggested_filename == f"trials-{first}.csv"


def test_the_list_moves_by_itself_and_a_job_is_cancelled(tab: Page, served: str) -> None:
    job_id = submit(tab, served, "matmul:M=64,N=48,K=32", endless=True)
    tab.goto(served)
    row = tab.locator(f"tr:has(a[href='/jobs/{job_id}'])")
    row.locator(".state-running").wait_for()
    row.get_by_role("link").focus()
    seen = row.locator(".progress .num").inner_text()
    tab.wait_for_function(
        "([id, seen]) => { const a = document.querySelector(`tr a[href='/jobs/${id}']`);"
        " return a && a.closest('tr').querySelector('.progress .num').innerText !== seen; }",
        arg=[job_id, seen],
    )
    assert tab.evaluate("document.activeElement.id") == f"job-{job_id}", "the focus stays"
    tab.keyboard.press("Enter")
    tab.locator("#curve canvas").wait_for()
    tab.get_by_role("button", name="Cancel").click()
    tab.locator("#facts .state-cancelled").first.wait_for()
    tab.locator("#fastest table").wait_for()


def test_a_button_pressed_while_the_page_is_renewed_is_pressed(tab: Page, served: str) -> None:
    submit(tab, served, "matmul:M=64,N=64,K=32", endless=True)
    cancel = tab.get_by_role("button", name="Cancel")
    while True:  # it may move between the two
        cancel.hover()
        tab.mouse.down()
        if cancel.and_(tab.locator(":active")).count():
            break
        tab.mouse.move(0, 0)
        tab.mouse.up()
    for _ in range(2):
        with tab.expect_response(re.compile("/facts$")):
            pass
    tab.mouse.up()
    tab.locator("#facts .state-cancelled").first.wait_for()


def test_what_will_not_do_is_said_while_it_is_typed_and_when_it_is_sent(
    tab: Page, served: str
) -> None:
    tab.goto(f"{served}/jobs/new")
    field = tab.get_by_label("Workload", exact=True)
    assert tab.evaluate("document.activeElement.id") == "workload", "typing may begin at once"
    tab.get_by_role("link", name="softmax_mn", exact=True).click()
    assert field.input_value().startswith("softmax_mn:M=")
    tab.locator("#checked").get_by_text("softmax_mn").wait_for()
    field.fill("matmul:M=24,N=16,K=20")
    field.blur()
    tab.locator("#checked").get_by_text("operations").wait_for()
    field.fill("matmul:M=24")
    field.blur()
    tab.locator("#checked .problem").wait_for()


def test_a_search_narrows_the_list_while_it_is_typed(tab: Page, served: str) -> None:
    submit(tab, served, "softmax_mn:M=8,N=64", trials=4)
    wait_for_result(tab)
    submit(tab, served, "matmul:M=8,N=8,K=12", trials=4)
    wait_for_result(tab)
    tab.goto(served)
    tab.get_by_label("Search").press_sequentially("softmax")
    tab.locator("#jobs:not(:has-text('matmul'))").wait_for()
    assert tab.locator("#jobs td.what").count() == 1
    tab.goto(f"{served}/workloads")
    tab.get_by_label("Workload", exact=True).press_sequentially("matmul:m=8,n=8,k=12")
    tab.locator("#bests:not(:has-text('softmax'))").wait_for()
    assert tab.locator("#bests td.what").count() == 1


def test_everything_is_done_by_keyboard(tab: Page, served: str) -> None:
    tab.goto(served)
    tab.keyboard.press("Tab")
    assert focused(tab) == "Skip to the content"
    outline = tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none", "what has the focus can be seen"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "main"
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.id") == "q"
    assert tab.evaluate("document.activeElement.value") == "", "the key itself is not typed"
    tab.keyboard.press("Escape")
    tab.locator("body").evaluate("document.activeElement.blur()")
    tab.keyboard.press("n")
    tab.wait_for_url(re.compile("/jobs/new"))
    assert tab.evaluate("document.activeElement.id") == "workload"
    tab.keyboard.type("matmul:M=8,N=8,K=20")
    for _ in range(12):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.id") == "trials":
            tab.keyboard.type("4")
        if tab.evaluate("document.activeElement.id") == "measurer":
            tab.keyboard.type("simulated:fast")
        if focused(tab) == "Tune":
            break
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile("/jobs/"))
    wait_for_result(tab)
    for _ in range(40):
        tab.keyboard.press("Tab")
        if focused(tab) == "Open the record":
            break
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile("/records/"))


def focused(tab: Page) -> str:
    """The text of what has the focus."""
    text: str = tab.evaluate("document.activeElement.innerText || ''")
    return text.strip()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_every_page_without_sideways_scrolling(
    browser: Browser, served: str, tab: Page, scheme: Literal["light", "dark"]
) -> None:
    other = submit(tab, served, "matmul:M=8,N=8,K=20", trials=4)
    many = submit_many(tab, served)
    submit(tab, served, LONG_NAME, trials=12)
    wait_for_result(tab)
    record = str(tab.get_by_role("link", name="Open the record").get_attribute("href"))
    key = record.rpartition("/")[2]
    job = tab.url.removeprefix(served)
    paths = (
        "/",
        "/jobs/new",
        job,
        many,
        f"{job}/trials?sort=time",
        f"{job}/importance",
        f"/jobs/compare?a={job.rpartition('/')[2]}&b={other}",
        record,
        f"/compare?a={key}&b={key}",
        "/workloads",
        "/fleet",
        "/docs",
        "/login",
    )
    context = browser.new_context(viewport={"width": 320, "height": 640}, color_scheme=scheme)
    try:
        phone = context.new_page()
        backgrounds = set()
        for path in paths:
            phone.goto(served + path)
            phone.mouse.wheel(0, 20_000)
            phone.wait_for_load_state("networkidle")
            wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert phone.evaluate(wide) == 0, path
            backgrounds.add(
                phone.evaluate("getComputedStyle(document.documentElement).backgroundColor")
            )
        [background] = backgrounds
        light = sum(map(int, re.findall(r"\d+", background)[:3])) > 384
        assert light == (scheme == "light")
    finally:
        context.close()


def test_without_scripts_a_job_is_submitted_and_read(browser: Browser, served: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    try:
        tab = context.new_page()
        submit(tab, served, "matmul:M=8,N=8,K=28", trials=4)
        for _ in range(300):
            tab.reload()
            if tab.get_by_role("link", name="Open the record").count():
                break
            tab.wait_for_timeout(200)
        tab.get_by_role("link", name="Open the record").click()
        tab.get_by_role("link", name="Show the assembly").click()
        assert "Marked: the hot loop" in tab.locator("main").inner_text()
    finally:
        context.close()


def test_nothing_inline_and_nothing_from_elsewhere_runs(
    context: BrowserContext, served: str
) -> None:
    """The content policy holds in the browser too."""
    tab = context.new_page()
    tab.goto(served)
    refused = tab.evaluate(
        """() => new Promise((done) => {
            const found = [];
            addEventListener('securitypolicyviolation', (event) => {
                found.push(event.effectiveDirective);
                if (found.length === 2) done(found.sort());
            });
            const script = document.createElement('script');
            script.textContent = 'window.ran = true';
            document.body.append(script);
            const image = new Image();
            image.src = 'https://elsewhere.example/x.png';
        })"""
    )
    assert refused == ["img-src", "script-src-elem"]
    assert tab.evaluate("window.ran === undefined")
