"""The dashboard in a real browser: what stands on the page is what the job does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deeprec_ext.autoscaler.history.estimates import Estimates, Figure, Like
from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.behaviour.browser import Browser, find
from tests.behaviour.jobs import LONG, RealJob
from tests.behaviour.pages import Page

pytestmark = pytest.mark.skipif(find() is None, reason="no Chromium: apt-get install chromium")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path) as one:
        one.show(1280, 900)
        yield one


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """Of a job with two PS, a chief and a worker, all of them pretended; 8 slots, of which number 3 is hot."""
    directory = tmp_path / "job"
    directory.mkdir()
    with Page(directory) as one:
        yield one


def number(text: str) -> int:
    return int(re.sub(r"\D", "", text) or 0)


def next_step(browser: Browser) -> None:
    """Until the page shows a higher one."""
    before = number(browser.text("#step"))
    script = "document.getElementById('step').innerText"
    browser.until(script, "another step", met=lambda text: number(text) > before)


def grown(browser: Browser, chart: str, seconds: float = 30.0) -> None:
    """Until the curve of a chart has more points."""
    script = f"(document.querySelector('{chart} .curve')?.getAttribute('d') ?? '').split('L').length"
    before = browser.run(script)
    browser.until(script, f"the curve of {chart} to grow", seconds, met=lambda now: now > before + 2)


def press(browser: Browser, words: str) -> None:
    """The button of the form that scales."""
    script = "[...document.querySelectorAll('#scale-form button')].find((one) => one.innerText === %s).click()"
    browser.run(script % json.dumps(words))


def choose(browser: Browser, selector: str, value: object) -> None:
    """As a user chooses or types it."""
    browser.run(f"""(() => {{
        const one = document.querySelector({json.dumps(selector)});
        one.value = {json.dumps(value)};
        one.dispatchEvent(new Event("change"));
    }})()""")


def only_ours(browser: Browser, url: str) -> None:
    """The page has complained of nothing, and has asked nobody but the AIMaster."""
    assert browser.complaints == []
    assert browser.requests and all(asked.startswith(url) for asked in browser.requests), browser.requests


@pytest.mark.parametrize(
    ("times", "begins"),
    [
        ([60 * minute for minute in range(1, 13)] + [720 + 10 * number for number in range(1, 361)], [0]),
        ([2, 4, 6, 106, 108, 110], [0, 3]),
        ([5], [0]),
    ],
    ids=["minutes, then seconds", "away for a while", "one value"],
)
def test_a_curve_begins_anew_after_a_gap_and_not_where_old_values_stand_in_larger_steps(
    browser: Browser, page: Page, times: list[int], begins: list[int]
) -> None:
    browser.open(page.url)
    script = """import('/static/chart.js').then(({ interrupted }) =>
        POINTS.map((_, index) => index).filter((index) => interrupted(POINTS, index)))"""
    assert browser.run(script.replace("POINTS", json.dumps([[time, 1.0] for time in times]))) == begins


def test_the_page_shows_the_job_and_changes_with_it(browser: Browser, page: Page) -> None:
    browser.open(page.url)
    browser.sees("#state", "training")
    assert browser.text("#job") == "job" and browser.run("document.title") == "job: training"
    assert browser.text("#link") == "live"
    next_step(browser)
    assert browser.text("#ps-count") == "2" and browser.text("#trainer-count") == "2"
    names = browser.run("[...document.querySelectorAll('#ps .name, #trainers .name')].map((one) => one.innerText)")
    assert names == ["ps-0", "ps-1", "chief-0", "worker-0"]
    browser.counts("#ps .cell", 8)
    browser.until("document.querySelector('[data-slot=\"3\"]').title.startsWith('slot 3: 27 %')", "its load")
    browser.sees("#balance", "slot 3 carries")
    browser.sees("[data-role=worker-0]", "100 ms a step")
    browser.counts("#lane path", 4)
    browser.counts("#step-times .curve", 2)
    grown(browser, "#throughput")
    assert "300 MB of 1.0 GB" in browser.text("#role-table")
    assert "No backups" in browser.text("#backup") and "No data ledger" in browser.text("#data")
    assert "--autoscale" in browser.text("#decision-table"), "where decisions come from"
    only_ours(browser, page.url)


def test_a_scaling_is_seen_in_the_topology_on_the_axis_and_in_the_table(browser: Browser, page: Page) -> None:
    browser.open(f"{page.url}#token={page.token}")
    browser.sees("#access", "may scale")
    assert browser.run("location.href") == page.url, "the token does not stay in the address"
    browser.sees("#state", "training")
    choose(browser, "#scale-form input[type=number]", 4)
    press(browser, "Preview")
    browser.sees("#scale-form output", "Would be: scale-up")
    assert page.world.master.scalings.records() == []
    browser.click("#scale-form button[type=submit]")
    browser.counts("#ps > *", 4, LONG)
    row = browser.sees("#scaling-table tbody", "committed", LONG)
    assert "scale-up PS 2 → 4" in row and "by hand, from the dashboard" in row
    browser.counts("#throughput [data-mark=scaling]", 1)
    browser.counts("#step-times [data-mark=scaling]", 1)
    cells = browser.run("[...document.querySelectorAll('#ps > *')].map((one) => one.querySelectorAll('.cell').length)")
    assert cells == [2, 2, 2, 2]
    browser.sees("#event-list", "scaling ended")
    only_ours(browser, page.url)
    choose(browser, "#scale-form input[type=number]", 400)
    press(browser, "Preview")
    assert browser.run("document.querySelector('#scale-form input[type=number]').validity.rangeOverflow")


def test_ps_and_workers_are_scaled_together(browser: Browser, page: Page) -> None:
    browser.open(f"{page.url}#token={page.token}")
    browser.sees("#access", "may scale")
    browser.sees("#state", "training")
    ps, workers = "#scale-form [aria-label=PS]", "#scale-form [aria-label=Workers]"
    choose(browser, ps, 3)
    choose(browser, workers, 2)
    press(browser, "Scale")
    browser.counts("#ps > *", 3, LONG)
    browser.counts("#trainers > *", 3, LONG)
    row = browser.sees("#scaling-table tbody", "committed", LONG)
    assert "PS 2 → 3, workers 1 → 2" in row
    [record] = page.world.master.scalings.records()
    assert record.outcome == "committed"
    choose(browser, workers, 1)
    press(browser, "Preview")
    said = browser.sees("#scale-form output", "Would be:")
    assert "PS" not in said, "of the PS, which nobody has changed, nothing is asked"


def test_without_the_token_the_page_only_reads(browser: Browser, page: Page) -> None:
    def post(headers: dict[str, str]) -> tuple[int, str]:
        headers = {"Content-Type": "application/json", **headers}
        options = {"method": "POST", "body": json.dumps({"ps": 3}), "headers": headers}
        return browser.run(
            f"fetch('api/scale', {json.dumps(options)}).then(async (one) => [one.status, await one.text()])"
        )

    browser.open(page.url)
    browser.sees("#state", "training")
    assert browser.text("#access") == "read-only" and browser.run("document.getElementById('scale-form').hidden")
    status, words = post({})
    assert status == 403 and "read-only" in words
    assert post({"Authorization": "Bearer wrong"})[0] == 403
    assert page.world.master.scalings.records() == []
    assert post({"Authorization": f"Bearer {page.token}"})[0] == 200, "the same request with the token"
    browser.open(f"{page.url}#token=wrong")
    browser.sees("#scale-closed", "not this job's")


def test_what_a_job_says_is_text_and_never_html(browser: Browser, page: Page) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"

    async def say() -> None:
        page.job.event("warning", "chief-0", text=evil)
        page.job.event(evil, evil, **{evil: evil})

    page.do(say())
    browser.open(page.url)
    assert browser.sees("#event-list", evil).count(evil) >= 4
    choose(browser, "#log-role", "ps-0")
    browser.sees("#log", "this is ps-0 <b>bold</b>")
    browser.counts("main img, main script, #log b", 0)
    only_ours(browser, page.url)


def test_what_was_estimated_stands_below_the_decisions(browser: Browser, page: Page) -> None:
    evil = "<img src=x onerror=alert(1)>"
    memory = Figure("ps_memory", "ps", 1e9, 8e8, 1.3e9, "computed from the variables")
    browser.show(390, 844, mobile=True)
    browser.open(page.url)
    browser.sees("#state", "training")
    assert browser.run("document.getElementById('estimate').hidden"), "nothing was estimated"

    async def say() -> None:
        page.job.declared.foretell(Estimates(Size(2, 1), (memory,), like=(Like(evil, "train", 0.92),)))
        page.job.event("estimated", text="")

    page.do(say())
    text = browser.sees("#estimate", "memory of the fullest PS: 1.0 GB, 800 MB to 1.3 GB")
    assert f"Estimated before the start: it begins with 2 PS and 1 worker; by {evil} (92% alike)" in text
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert browser.run(CONTRAST) == [], "texts with too little contrast"
    browser.counts("main img", 0)
    only_ours(browser, page.url)


def test_logs_follow_a_role(browser: Browser, page: Page, tmp_path: Path) -> None:
    browser.open(page.url)
    browser.counts("#log-role option", 5)
    choose(browser, "#log-role", "ps-0")
    browser.sees("#log", "this is ps-0")
    browser.run("document.getElementById('log').scrollIntoView({behavior: 'instant'})")
    with (tmp_path / "job" / "logs" / "ps-0.log").open("a") as file:
        file.write("and one more line\n")
    browser.sees("#log", "and one more line")
    choose(browser, "#log-role", "ps-1")
    browser.sees("#log", "there is no log of ps-1 here")


def test_details_of_a_ps_a_trainer_and_a_slot(browser: Browser, page: Page) -> None:
    browser.open(page.url)
    browser.counts("#ps .cell", 8)
    browser.click("[data-role='worker-0'] .open")
    browser.sees("#detail", "100 ms, 95 % below 150 ms")
    browser.until("document.querySelectorAll('#detail .curve').length >= 4", "the curves of the worker")
    browser.click("[data-slot='3']")
    assert "Slot 3" in browser.sees("#detail", "table3"), "its variables"
    browser.key("Escape")
    browser.until("document.getElementById('detail').hidden", "Escape to close it")
    browser.run("document.querySelector('[data-role=ps-1] .open').focus()")
    browser.key("Enter")
    browser.sees("#detail h2", "ps-1")
    only_ours(browser, page.url)


def test_a_chart_tells_its_values_to_the_keyboard(browser: Browser, page: Page) -> None:
    browser.open(page.url)
    browser.counts("#step-times .curve", 2)
    grown(browser, "#step-times")
    browser.run("document.querySelector('#step-times svg').focus()")
    browser.key("End")
    browser.key("ArrowLeft")
    said = browser.run("document.querySelector('#step-times [aria-live]').textContent")
    assert "worker-0100 ms" in said and "chief-050 ms" in said
    said = browser.run("document.querySelector('#throughput .tip').textContent")
    assert "examples per second15.4 k" in said, "both charts show the same moment: 512 examples of 30 steps"
    browser.click("#step-times .legend button")
    browser.counts("#step-times .curve", 1)


def test_the_page_says_when_the_aimaster_is_gone_and_connects_again(
    browser: Browser, page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    browser.open(page.url)
    browser.sees("#link", "live")
    next_step(browser)
    address = page.do(page.unserve())
    browser.sees("#link", "no answer")
    assert "connects again by itself" in browser.sees("#banner", "does not answer")
    assert number(browser.text("#step")) > 0, "the last picture stays"
    page.do(page.serve(address))
    browser.sees("#link", "live")
    browser.until("document.getElementById('banner').hidden", "the banner to go")
    next_step(browser)
    assert "Traceback" not in caplog.text, "an open page does not make the end of an AIMaster look like an error"


def test_too_many_pages_are_told_so(browser: Browser, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeprec_ext.aimaster.dashboard.live.CLIENTS_MAX", 0)
    browser.open(page.url)
    browser.sees("#banner", "Too many pages of this job are open.")
    monkeypatch.setattr("deeprec_ext.aimaster.dashboard.live.CLIENTS_MAX", 1)
    browser.sees("#link", "live")


def test_a_job_that_has_ended_is_said_to_have_ended_also_without_an_aimaster(browser: Browser, page: Page) -> None:
    browser.open(page.url)
    browser.sees("#state", "training")

    async def end() -> None:
        page.job.end("finished")

    page.do(end())
    browser.sees("#state", "finished")
    browser.sees("#banner", "The job has finished.")
    page.do(page.unserve())
    browser.sees("#banner", "The job has ended.")


@pytest.mark.parametrize("width, dark", [(1280, False), (390, True)])
def test_a_job_without_ps_is_a_ring_that_newcomers_enter_and_the_lost_leave(
    browser: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    directory = tmp_path / "job"
    directory.mkdir()
    browser.show(width, 900, dark=dark, mobile=width < 600)
    with Page(directory, slots=0, ps=0, min_ps=0) as page:
        browser.open(f"{page.url}#token={page.token}")
        browser.counts("#ring .node.member", 2)
        browser.counts("#ring .arc", 2)
        assert "in step, without PS" in browser.text("#facts") and browser.text("#ps-label") == "In step"
        of_ps = (
            "['ps-column', 'slots-by', 'lane', 'scale'].filter((id) => document.getElementById(id).checkVisibility())"
        )
        assert browser.run(of_ps) == []
        assert "whole model" in browser.text("#backup")
        browser.sees("#access", "may scale")
        assert browser.text("#scale-form select option") == "number of workers"
        assert "rebalance" not in browser.run("document.getElementById('scale-form').textContent")
        choose(browser, "#scale-form input[aria-label='Workers']", 2)
        press(browser, "Scale")
        browser.sees("#ring-told", "worker-1")
        browser.counts("#ring .node.coming", 1)
        page.do(page.world.agent("worker-1").say(ring=pb.Ring(address="worker-1:7")))
        browser.counts("#ring .node.member", 3)
        browser.counts("#ring .node.coming", 0)
        page.do(page.world.backend.kill("worker-0"))
        browser.counts("#ring .node.member", 2)
        browser.sees("#ring-told", "killed by signal 9")
        browser.run("document.querySelector('#ring .node.member').dispatchEvent(new MouseEvent('click'))")
        browser.sees("#detail h2", "chief-0")
        browser.picture(tmp_path / "ring.png")
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run(CONTRAST) == [] and browser.run(UNNAMED) == []
        only_ours(browser, page.url)


@pytest.mark.parametrize("width, height", [(1280, 900), (390, 844)])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_window_and_every_text_can_be_read(
    browser: Browser, page: Page, tmp_path: Path, width: int, height: int, dark: bool
) -> None:
    browser.show(width, height, dark=dark, mobile=width < 600)
    browser.open(f"{page.url}#token={page.token}")
    browser.counts("#ps .cell", 8)
    browser.sees("#event-list", "model live")
    browser.run("document.querySelector('[data-role=ps-0] .open').click()")
    browser.until("document.querySelectorAll('#detail .curve').length >= 2", "details")
    browser.picture(tmp_path / f"{width}-{'dark' if dark else 'light'}.png")
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(CONTRAST) == [], "texts with too little contrast"
    assert browser.run(UNNAMED) == [], "controls without a name"


CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, under) => under.map((one, k) => top[k] * top[3] / 255 + one * (1 - top[3] / 255));
  const ground = (one) => {
    const layers = [];
    for (let at = one; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), rgba("Canvas").slice(0, 3));
  };
  const light = (rgb) => rgb.map((one) => one / 255)
    .map((one) => one <= .03928 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4)
    .reduce((sum, one, k) => sum + one * [.2126, .7152, .0722][k], 0);
  const weak = [];
  for (const one of document.querySelectorAll("body *")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !one.checkVisibility() || one.closest("svg") || one.matches(":disabled, option")) continue;
    const under = ground(one), ink = over(rgba(getComputedStyle(one).color), under);
    const pair = [light(ink), light(under)].sort((a, b) => b - a);
    const ratio = (pair[0] + .05) / (pair[1] + .05);
    if (ratio < 4.5) weak.push(`${one.tagName}.${one.className} ${one.innerText.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return weak;
})()"""
"""WCAG's ratio of each text to what lies under it, where it is below 4.5."""

UNNAMED = """[...document.querySelectorAll("button, select, input")]
  .filter((one) => one.offsetParent && !one.innerText.trim() && !one.ariaLabel && !one.labels?.length && !one.title)
  .map((one) => one.outerHTML)"""


@pytest.mark.slow
def test_a_real_job_from_its_start_to_its_end(begin: Callable[..., RealJob], tmp_path: Path) -> None:
    """`deeprec-ext run --dashboard`: scaled from the page, robbed of a worker and of its AIMaster, finished."""
    with Browser(tmp_path) as browser:  # first: on a busy machine the job has begun before a browser has
        browser.show(1280, 900)
        job = begin("--ps", "2", "--workers", "1", "--dashboard", "0")
        job.until((job.directory / "job.json").exists, "job.json")
        url = json.loads((job.directory / "job.json").read_text())["dashboard"]
        token = (job.directory / "certs" / "dashboard.token").read_text().strip()
        job.until(lambda: (status := job.status()) and status.dashboard == url, "the page to be served")
        door = job.directory / "dashboard.html"
        assert f"{url} (reads only; to scale from it, open {door.as_uri()})" in job.output, (
            "run says how the page is opened"
        )
        assert token not in job.output and f"{url}#token={token}" in door.read_text()
        assert door.stat().st_mode & 0o777 == 0o600
        browser.open(door.as_uri())
        browser.sees("#access", "may scale", LONG)
        browser.requests.remove(door.as_uri())  # it asks for nothing but the page
        browser.sees("#banner", "The job is starting.")
        browser.sees("#state", "training", LONG)
        browser.counts("#ps > *", 2)
        next_step(browser)
        grown(browser, "#throughput", LONG)
        job.wait_scalable()
        choose(browser, "#scale-form input[type=number]", 3)
        browser.click("#scale-form button[type=submit]")
        browser.counts("#ps > *", 3, LONG)
        browser.sees("#scaling-table tbody", "committed", LONG)
        browser.counts("#throughput [data-mark=scaling]", 1)
        job.kill("worker-0")
        browser.counts("#throughput [data-mark=failure]", 1, LONG)
        browser.sees("#failure-table tbody", "killed")
        only_ours(browser, url)
        job.kill_aimaster()
        browser.sees("#facts", "AIMaster 2", LONG)
        browser.sees("#link", "live")
        job.wait_training("chief-0")
        assert job.finish() == 0
        browser.sees("#link", "no answer", LONG)
        browser.until("/has (ended|finished)/.test(document.getElementById('banner').innerText)", "the end to be said")
