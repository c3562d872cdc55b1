"""The page on a real model that drafts for itself: a whole conversation, as a user has it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from tests.support.browser import chromium, tab
from tests.support.server_process import ServerProcess

SETTINGS = {"temperature": "0", "max_tokens": "48", "draft_length": "3"}


def test_a_conversation(model_path: Callable[[str], Path], tmp_path: Path) -> None:
    model = str(model_path("smollm2-135m"))
    flags = ["--target-model", model, "--draft-model", "self:q4_0", "--ctx-size", "1024"]
    with (
        ServerProcess(tmp_path / "log", *flags) as server,
        chromium() as browser,
        tab(browser, f"{server.url}/") as opened,
    ):
        page = opened.page
        page.click("#open-settings")
        for name, value in SETTINGS.items():
            page.fill(f"#set-{name}", value)
        page.click("#settings-save")
        page.fill("#text", "Count from 1 to 12, one number per line.")
        page.press("#text", "Enter")
        expect(page.locator("#log .token").nth(5)).to_be_visible(timeout=60_000)
        expect(page.locator("#send")).to_be_visible(timeout=60_000)
        assert page.locator("#log .token[data-origin=accepted]").count() > 5
        expect(page.locator(".meta")).to_have_text(
            re.compile(r"\d+ tokens · [\d.]+ tokens/s · \d+ of \d+ gu")
        )
        tokens = page.locator(".message[data-role=assistant] .token").all_inner_texts()
        shown = page.locator(".message[data-role=assistant] > .body").inner_text()
        assert "".join("".join(tokens).split()) == "".join(shown.split())  # each character is some token's
        expect(page.locator("#lanes svg")).to_have_attribute(
            "aria-label", re.compile(r"draft \d+%, target \d+%")
        )
        page.click("#compare")
        expect(page.locator("#speed-note")).to_contain_text("the speed. Measured", timeout=60_000)
        page.fill("#text", "Thank you.")
        page.press("#text", "Enter")
        expect(page.locator(".message[data-role=assistant] .meta").nth(1)).to_be_visible(timeout=60_000)
        assert opened.wrong("lowContrast") == []
