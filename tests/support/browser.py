"""The system's Chromium, and what a page may not do in it: complain, ask elsewhere, be hard to read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
REQUIRED = "REQUIRED_TEST_BROWSER"  # set where a missing browser is a failure

CHECKS = Path(__file__).with_name("page_checks.js")
Check = Literal["unnamed", "lowContrast", "smallTargets", "overflow", "brokenReferences"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Skips the test where there is none, unless it is required."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        assert not os.environ.get(REQUIRED), f"none of {NAMES} is installed"
        pytest.skip("no Chromium is installed (Debian: apt install chromium)")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


@dataclass(slots=True)
class Tab:
    """A page of a browser profile of its own, and all that went wrong in it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def wrong(self, check: Check) -> list[Any]:
        """What a check of page_checks.js finds."""
        found: list[Any] = self.page.evaluate(f"({CHECKS.read_text(encoding='utf-8')}).{check}()")
        return found

    def note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)


@contextmanager
def tab(browser: Browser, url: str, *, expected: tuple[str, ...] = (), **context: Any) -> Iterator[Tab]:
    """A tab at `url`. At the end, asserts that nothing but `expected` was complained of, and that every
    request went to the server of `url`."""
    with browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **context}) as profile:
        page = profile.new_page()
        page.set_default_timeout(10_000)
        opened = Tab(page)
        page.on("console", lambda message: opened.note(message))
        page.on("pageerror", lambda error: opened.errors.append(str(error)))
        page.on("request", lambda request: opened.requests.append(request.url))
        page.goto(url)
        yield opened
        wrong = [text for text in opened.errors if not any(part in text for part in expected)]
        assert not wrong, wrong
        outside = [to for to in opened.requests if not to.startswith((url, "blob:", "data:"))]
        assert not outside, outside


def send(page: Page, text: str, *, wait: bool = True) -> None:
    """Sends a message, and waits for the end of its answer."""
    page.fill("#text", text)
    page.press("#text", "Enter")
    if wait:
        expect(page.locator("#send")).to_be_visible()


def answers(page: Page) -> Locator:
    return page.locator(".message[data-role=assistant] > .body")


def figure(page: Page, id: str) -> Locator:
    """A chart of the panel."""
    return page.locator(f"#{id} svg[role=img]")
