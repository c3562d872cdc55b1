"""The page for everybody: keys alone, phones, screen readers, light and dark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import Tab, answers, chromium, figure, send, tab
from tests.support.page_server import PageServer, page_server

# Or at the browser's own buttons, between the last and the first of the page.
IS_WITHIN = """panel => {
  const at = document.activeElement;
  return at === document.body || Boolean(at.closest(panel));
}"""
TABLET = {"viewport": {"width": 1024, "height": 768}, "has_touch": True, "is_mobile": True}
PHONE = {"viewport": {"width": 375, "height": 812}, "has_touch": True, "is_mobile": True}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    with page_server() as running:
        yield running


def test_theme_and_colours(browser: Browser, server: PageServer) -> None:
    with tab(browser, server.url, color_scheme="dark") as opened:
        page = opened.page
        ground = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(ground) == "rgb(20, 21, 24)"
        page.click("#theme")
        expect(page.locator("html")).to_have_attribute("data-theme", "light")
        assert page.evaluate(ground) == "rgb(253, 253, 252)"
        page.reload()
        assert page.evaluate(ground) == "rgb(253, 253, 252)"
        page.click("#theme")
        page.click("#theme")
        assert page.evaluate("document.documentElement.dataset.theme") is None
        send(page, "hello")
        line = (
            "getComputedStyle(document.querySelector('#log .token[data-origin=accepted]')).textDecorationLine"
        )
        assert page.evaluate(line) == "underline"
        page.keyboard.press("Alt+c")
        expect(page.locator("#colours")).not_to_be_checked()
        assert page.evaluate(line) == "none"
        page.reload()
        assert page.evaluate(line) == "none"


def test_the_keyboard_alone(browser: Browser, server: PageServer) -> None:
    with tab(browser, server.url) as opened:
        page = opened.page
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#text")).to_be_focused()
        page.keyboard.type("one")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("two")
        expect(page.locator("#text")).to_have_value("one\ntwo")
        page.keyboard.press("Enter")
        expect(answers(page)).to_have_text("You said: one\ntwo. ")
        page.locator("#log").focus()
        page.keyboard.press("?")
        expect(page.locator("#help")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#help")).not_to_be_visible()
        page.keyboard.press("/")
        expect(page.locator("#text")).to_be_focused()
        expect(page.locator("#insight")).to_be_visible()
        page.keyboard.press("Alt+p")
        expect(page.locator("#insight")).not_to_be_visible()


def check_everywhere(opened: Tab) -> None:
    assert opened.wrong("unnamed") == []
    assert opened.wrong("lowContrast") == []
    assert opened.wrong("brokenReferences") == []
    assert opened.wrong("overflow") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_it(browser: Browser, server: PageServer, scheme: str) -> None:
    with tab(browser, server.url, color_scheme=scheme) as opened:
        page = opened.page
        check_everywhere(opened)
        send(page, "markdown")
        expect(figure(page, "positions")).to_be_visible()
        check_everywhere(opened)
        for button, dialog in (("#open-settings", "#settings"), ("#open-help", "#help")):
            page.click(button)
            expect(page.locator(dialog)).to_be_visible()
            check_everywhere(opened)
            page.keyboard.press("Escape")


def test_a_phone(browser: Browser, server: PageServer) -> None:
    with tab(browser, server.url, **PHONE) as opened:
        page = opened.page
        send(page, "markdown")
        assert opened.wrong("overflow") == []
        assert opened.wrong("smallTargets") == []
        for button, panel, close in (
            ("#open-conversations", "#conversations", "#close-conversations"),
            ("#toggle-insight", "#insight", "#close-insight"),
            ("#open-settings", "#settings", "#settings-cancel"),
        ):
            expect(page.locator(panel)).not_to_be_visible()
            page.click(button)
            expect(page.locator(panel)).to_be_visible()
            page.wait_for_timeout(250)  # drawers slide in
            assert opened.wrong("overflow") == []
            assert opened.wrong("smallTargets") == []
            for _ in range(30):  # the keyboard stays in what lies over the rest
                page.keyboard.press("Tab")
                assert page.evaluate(IS_WITHIN, panel), panel
            page.click(close)
            expect(page.locator(panel)).not_to_be_visible()
            expect(page.locator(button)).to_be_focused()
        page.click("#open-conversations")
        page.click("#new")
        expect(page.locator("#conversations")).not_to_be_visible()
        expect(page.locator(".message")).to_have_count(0)


def test_a_tablet(browser: Browser, server: PageServer) -> None:
    with tab(browser, server.url, **TABLET) as opened:
        page = opened.page
        send(page, "markdown")
        expect(page.locator("#conversations")).to_be_visible()
        assert opened.wrong("smallTargets") == []
        assert opened.wrong("overflow") == []


def test_the_focus_follows_from_send_to_stop_and_back(browser: Browser, server: PageServer) -> None:
    with tab(browser, server.url) as opened:
        page = opened.page
        page.fill("#text", "slow one")
        page.focus("#send")
        page.keyboard.press("Enter")
        expect(page.locator("#stop")).to_be_focused()
        expect(answers(page)).to_contain_text("You said")
        page.keyboard.press("Enter")
        expect(page.locator("#send")).to_be_focused()
