"""The report in headless Chromium, from file://: it loads, filters, compares, obeys the keyboard, and runs nothing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loops.report import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
playwright_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: make test installs it")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def report(hostile_runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(list(hostile_runs), tmp_path_factory.mktemp("page") / "report").out


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


class Watched:
    """A page, and what it asked for and complained of."""

    def __init__(self, page: Any):
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda m: m.type in ("error", "warning") and self.complaints.append(m.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))


@pytest.fixture
def watched(browser) -> Iterator[Watched]:
    """A fresh page. Whatever a test did, the page must not have complained, nor asked for anything but files."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(10_000)
    found = Watched(page)
    yield found
    page.close()
    assert found.complaints == []
    assert found.requests
    assert [url for url in found.requests if not url.startswith("file://")] == []


def traces(watched: Watched, report: Path, address: str = "") -> Any:
    watched.page.goto((report / "traces.html").as_uri() + address)
    watched.page.locator(".step").first.wait_for()
    return watched.page


def step(page: Any, name: str) -> Any:
    return page.locator("section.step", has=page.locator("h3", has_text=re.compile(f"^{name}\\b")))


def options(page: Any) -> list[str]:
    return [row.inner_text() for row in page.get_by_role("option").and_(page.locator(".row")).all()]


def test_the_overview_loads_and_leads_to_the_cases(watched: Watched, report: Path) -> None:
    page = watched.page
    page.goto((report / "index.html").as_uri())
    assert page.get_by_role("heading", level=1).inner_text() == "vcloop report"
    assert page.get_by_role("heading", name="Gene pairs").is_visible()
    assert page.get_by_text("77.1 %").first.is_visible()
    assert page.locator("svg rect.bar-revised").first.bounding_box()["width"] > 50
    assert page.locator("strong.tag", has_text="SYNTHETIC").count() >= 5
    page.get_by_role("link", name="Its cases, step by step").last.click()
    page.locator(".step").first.wait_for()
    assert page.locator("#left").input_value() == "1.0"


def test_the_style_is_applied(watched: Watched, report: Path) -> None:
    page = traces(watched, report)
    assert page.evaluate("getComputedStyle(document.querySelector('.browser')).display") == "grid"


@pytest.mark.parametrize("name", ["index.html", "traces.html"])
def test_script_text_that_gets_into_a_page_does_not_run(
    watched: Watched, report: Path, tmp_path: Path, name: str
) -> None:
    """The policy is a second wall behind the escaping: here the wall is tried alone."""
    copy = tmp_path / "copy"
    shutil.copytree(report, copy)
    evil = "document.documentElement.lang = 'owned'"
    (copy / "evil.js").write_text(evil)
    smuggled = (
        f'<script>{evil}</script><script src="evil.js"></script><svg onload="{evil}"></svg><a onclick="{evil}">x</a>'
    )
    path = copy / name
    path.write_text(path.read_text("utf-8").replace("</h1>", "</h1>" + smuggled), "utf-8")
    watched.page.goto(path.as_uri())
    watched.page.locator("a", has_text="x").first.click()
    assert watched.page.evaluate("document.documentElement.lang") == "en"
    assert len(watched.complaints) == 4
    assert all("Content Security Policy" in text for text in watched.complaints)
    watched.complaints.clear()


def test_scripts_in_replies_and_titles_stay_text(watched: Watched, report: Path) -> None:
    page = traces(watched, report)
    page.get_by_role("button", name="Open all details").click()
    assert "</script><script>document.title='owned'</script>" in page.locator("#case-title").inner_text()
    pre = page.locator("pre", has_text="and no JSON").first
    assert "<img src=x onerror=" in pre.inner_text()
    for shown in ("\u241b[31m", "\u2400", "\u27e8U+2028\u27e9"):  # made visible, not passed on
        assert shown in pre.inner_text()
    assert page.locator("#trace script, #trace img[src=x], .list script").count() == 0
    assert "owned" not in page.evaluate("document.title.replace(document.querySelector('#case-title').textContent, '')")


def test_filter(watched: Watched, report: Path) -> None:
    page = traces(watched, report)
    assert page.locator("#count").inner_text() == "4 of 4 cases"
    page.locator("#text").fill("SLOW-growth")
    assert page.locator("#count").inner_text() == "1 of 4 cases"
    assert len(options(page)) == 1
    page.locator("#text").fill("")
    page.locator("#missing").select_option("none")
    assert page.locator("#count").inner_text() == "0 of 4 cases"  # the scripted review is never readable
    page.locator("#missing").select_option("some")
    assert page.locator("#count").inner_text() == "4 of 4 cases"
    page.locator("#outcome").select_option("complete")
    assert page.locator("#count").inner_text() == "4 of 4 cases"
    page.locator("#changed").select_option("corrected")
    corrected = set(options(page))
    page.locator("#changed").select_option("none")
    assert not corrected & set(options(page))
    assert all("+" in row for row in corrected)


def test_two_models_side_by_side_with_their_figures(watched: Watched, report: Path) -> None:
    page = traces(watched, report)
    page.get_by_role("option", name="wildtype").or_(page.locator(".row").nth(1)).first.click()
    predict = step(page, "Predict")
    left, right = predict.locator(".side").all()
    assert left.locator("img").count() == 0  # rules read tables
    images = right.locator("img")
    images.first.scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    assert images.count() >= 1
    assert images.first.evaluate("i => i.complete && i.naturalWidth") > 100
    assert images.first.get_attribute("alt")
    assert left.get_by_text("right").first.is_visible() or left.get_by_text("wrong").first.is_visible()
    places = [side.bounding_box() for side in (left, right)]
    assert places[0]["y"] == places[1]["y"]
    assert places[0]["x"] < places[1]["x"]
    page.locator("#right").select_option("none")
    assert predict.locator(".side").count() == 1
    page.locator("#left").select_option("1.0")
    predict.locator("img").first.wait_for()
    steps = page.locator("section.step h3").all_inner_texts()
    assert [s.split()[0] for s in steps] == ["Predict", "Review", "Select", "Observe", "Calibrate", "Revise", "How"]


def test_corrections_are_named_in_words(watched: Watched, report: Path) -> None:
    page = traces(watched, report)
    page.locator("#changed").select_option("corrected")
    page.locator(".row").first.click()
    revise = step(page, "Revise")
    assert revise.get_by_text("corrected").first.is_visible()


def test_keyboard_alone(watched: Watched, report: Path) -> None:
    page = traces(watched, report)
    seen = []
    for _ in range(8):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
            )
        )
    assert seen == ["skip", "A", "text", "pilot", "outcome", "changed", "missing", "list"]
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    first = page.locator("#case-title").inner_text()
    page.keyboard.press("ArrowDown")
    active = page.locator("#list").get_attribute("aria-activedescendant")
    assert page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    assert page.locator(f"#{active}").get_attribute("aria-posinset") == "2"
    page.wait_for_timeout(200)
    second = page.locator("#case-title").inner_text()
    assert second != first
    page.keyboard.press("End")
    page.wait_for_timeout(200)
    assert page.locator("#after").is_disabled()
    page.keyboard.press("Home")
    page.wait_for_timeout(200)
    assert page.locator("#case-title").inner_text() == first
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "case-title"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "left"


def test_names_and_landmarks(watched: Watched, report: Path) -> None:
    page = traces(watched, report)
    for page_name in ("traces.html", "index.html"):
        page.goto((report / page_name).as_uri())
        assert page.get_by_role("main").count() == 1
        assert page.locator("h1").count() == 1
        assert page.evaluate("document.documentElement.lang") == "en"
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('input,select,button,a,[role=region],[role=listbox],svg[role=img]')]
            .filter(e => !(e.labels && e.labels.length) && !e.textContent.trim() && !e.getAttribute('aria-label')
                && !e.getAttribute('aria-labelledby') && !e.querySelector('img[alt]'))
            .map(e => e.outerHTML.slice(0, 80))"""
        )
        assert nameless == []
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", ["index.html", "traces.html"])
def test_a_phone_scrolls_down_only(browser, watched: Watched, report: Path, name: str) -> None:
    page = watched.page
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto((report / name).as_uri())
    if name == "traces.html":
        page.locator(".step").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    small = page.evaluate(
        "[...document.querySelectorAll('body *')].filter(e => e.children.length === 0 && e.textContent.trim()"
        " && e.getClientRects().length && parseFloat(getComputedStyle(e).fontSize) < 10).length"
    )
    assert small == 0


def test_a_missing_file_is_said(watched: Watched, report: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(report, copy)
    (copy / "data/r0-0.js").unlink()
    watched.page.goto((copy / "traces.html").as_uri())
    alert = watched.page.get_by_role("alert")
    alert.wait_for()
    assert "data/r0-0.js cannot be read" in alert.inner_text()
    assert all("ERR_FILE_NOT_FOUND" in text for text in watched.complaints)
    watched.complaints.clear()


def test_it_prints(watched: Watched, report: Path) -> None:
    page = traces(watched, report)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert not page.locator(".picker").is_visible()
    assert page.locator("pre").first.is_visible()
    assert page.pdf().startswith(b"%PDF")
