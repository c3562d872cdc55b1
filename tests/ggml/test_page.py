"""The page in a browser: whole conversations, its switches, and what makes it usable for everybody."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from lucebox.engine.client import EngineState
from tests.support.browser import answers, chromium, figure, send, tab
from tests.support.page_server import PageServer, page_server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    with page_server() as running:
        yield running


def test_a_conversation(browser: Browser, server: PageServer) -> None:
    with tab(browser, server.url) as opened:
        page = opened.page
        expect(page.locator("#server-model")).to_have_text("tiny")
        expect(page.locator("#server-state")).to_have_text("ready")
        send(page, "hello")
        expect(answers(page)).to_have_text("You said: hello. ")
        expect(page.locator("#status")).to_contain_text("Answered: ")
        origins = {name: page.locator(f"#log .token[data-origin={name}]") for name in ("accepted", "bonus")}
        assert origins["accepted"].count() > 3
        assert origins["accepted"].first.get_attribute("title") == "accepted guess by suffix"
        assert origins["bonus"].count() > 0
        expect(page.locator(".meta")).to_have_text(
            re.compile(r"18 tokens · [\d.]+ tokens/s · \d+ of \d+ guesses kept")
        )
        send(page, "and more")
        expect(answers(page)).to_have_text(["You said: hello. ", "You said: and more. "])
        seen = [(m["role"], m["content"]) for m in server.text.seen[-1]]
        assert seen == [("user", "hello"), ("assistant", "You said: hello. "), ("user", "and more")]
        assert "\u2013 Lucebox" in page.title()
        expect(page.locator("button[data-action=regenerate]:visible")).to_have_count(1)  # of the last answer


def test_the_panel_says_what_speculation_did(browser: Browser, server: PageServer) -> None:
    with tab(browser, server.url) as opened:
        page = opened.page
        send(page, "a message that is long enough for several rounds of every kind")
        expect(figure(page, "positions")).to_have_attribute(
            "aria-label",
            re.compile(r"Share of \d+ drafts whose token was kept: position 1 \d+%, position 2 "),
        )
        expect(figure(page, "origins")).to_have_attribute(
            "aria-label", re.compile(r"Of \d+ tokens: \d+ accepted")
        )
        expect(figure(page, "lengths")).to_have_attribute(
            "aria-label", re.compile(r"tokens on average, 4 at most")
        )
        expect(figure(page, "lanes")).to_have_attribute(
            "aria-label", re.compile(r"draft 1\d%, target 7\d% of")
        )
        expect(page.locator("#speed-with")).to_have_text(re.compile(r"\d+\.\d"))
        expect(page.locator("#speed-note")).to_have_text("Without: not measured yet.")
        page.click("#compare")
        expect(page.locator("#speed-without")).to_have_text(re.compile(r"\d+\.\d"))
        expect(page.locator("#speed-note")).to_contain_text("× the speed. Measured on the same prompt")
        expect(page.locator("#speed-note")).to_contain_text("the same text")
        assert server.engine.submits[-1].params.speculative.enabled is False
        send(page, "another message")
        expect(page.locator("#speed-note")).to_contain_text("measured on another prompt")
        page.reload()
        page.locator("button[data-action=figures]").first.click()
        expect(page.locator("#speed-note")).to_contain_text("the same text")


def test_stopping_and_asking_again(browser: Browser, server: PageServer) -> None:
    with tab(browser, server.url) as opened:
        page = opened.page
        n_cancelled = len(server.engine.cancelled)
        send(page, "slow one", wait=False)
        expect(answers(page)).to_contain_text("You said")
        page.click("#stop")
        expect(page.locator("#send")).to_be_visible()
        expect(page.locator(".meta")).to_contain_text("stopped")
        assert server.engine.wait_cancelled(n_cancelled + 1)
        page.click("button[data-action=regenerate]")
        expect(page.locator("#stop")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#send")).to_be_visible()
        expect(answers(page)).to_have_count(1)
        page.click("button[data-action=edit]")
        page.fill(".edit textarea", "quick one")
        page.click(".edit button[type=submit]")
        expect(answers(page)).to_have_text(["You said: quick one. "])


def test_conversations_are_kept(browser: Browser, server: PageServer, tmp_path: Path) -> None:
    with tab(browser, server.url) as opened:
        page = opened.page
        send(page, "the first")
        page.keyboard.press("Alt+n")
        expect(page.locator(".message")).to_have_count(0)
        send(page, "the second")
        page.reload()
        expect(page.locator("button.conversation")).to_have_text(["the second", "the first"])
        expect(answers(page)).to_have_text(["You said: the second. "])
        assert page.locator("#log .token[data-origin=accepted]").count() > 3
        page.click("button.conversation >> text=the first")
        page.click("button[data-action=rename]")
        page.fill("#rename-text", "renamed")
        page.press("#rename-text", "Enter")
        expect(page.locator("li[data-current=true] .conversation")).to_have_text("renamed")
        with page.expect_download() as download:
            page.click("#export")
        kept = tmp_path / "kept.json"
        download.value.save_as(kept)
        page.click("button[data-action=delete]")
        page.click("#confirm-no")
        expect(page.locator("button.conversation")).to_have_count(2)
        page.click("button[data-action=delete]")
        page.click("#confirm-yes")
        expect(page.locator("button.conversation")).to_have_text(["the second"])
        page.set_input_files("#import-file", kept)
        expect(page.locator("#side-note")).to_have_text("2 conversations imported.")
        expect(page.locator("button.conversation")).to_have_count(3)
        wrong = tmp_path / "wrong.json"
        wrong.write_text(json.dumps({"format": "lucebox.conversations/1", "conversations": [{"id": 1}]}))
        page.set_input_files("#import-file", wrong)
        expect(page.locator("#side-note")).to_contain_text("cannot be read")


def test_two_tabs_share_conversations(browser: Browser, server: PageServer) -> None:
    with tab(browser, server.url) as opened:
        send(opened.page, "in the first tab")
        other = opened.page.context.new_page()
        other.goto(server.url)
        send(other, "in the second tab")
        expect(answers(opened.page)).to_have_count(2)
        other.click("button[data-action=delete]")
        other.click("#confirm-yes")
        expect(opened.page.locator(".message")).to_have_count(0)


def test_settings_reach_the_engine(browser: Browser, server: PageServer) -> None:
    with tab(browser, server.url) as opened:
        page = opened.page
        page.click("#open-settings")
        values = {
            "temperature": "0.5",
            "top_p": "0.9",
            "top_k": "40",
            "min_p": "0.05",
            "max_tokens": "7",
            "seed": "3",
        }
        for name, value in values.items():
            page.fill(f"#set-{name}", value)
        page.fill("#set-system", "Be brief.")
        page.fill("#set-draft_length", "2")
        page.select_option("#set-speculation", "on")
        page.fill("#set-top_p", "7")
        page.click("#settings-save")
        expect(page.locator("#settings-error")).to_have_text("Top p must be a number over 0, at most 1.")
        page.fill("#set-top_p", "0.9")
        page.click("#settings-save")
        send(page, "hello")
        params = server.engine.submits[-1].params
        assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 0.9, 40, 0.05)
        assert (params.max_tokens, params.seed) == (7, 3)
        assert (params.speculative.enabled, params.speculative.draft_length) == (True, "fixed:n=2")
        assert server.text.seen[-1][0] == {"role": "system", "content": "Be brief."}
        expect(page.locator(".meta")).to_contain_text("cut at the token limit")
        page.reload()
        page.click("#open-settings")
        expect(page.locator("#set-seed")).to_have_value("3")
        expect(page.locator("#set-system")).to_have_value("Be brief.")
        page.select_option("#set-speculation", "off")
        page.click("#settings-save")
        send(page, "again")
        expect(page.locator("#speed-note")).to_have_text("This answer was made without speculation.")
        assert server.engine.submits[-1].params.speculative.enabled is False


def test_markdown_stays_text(browser: Browser, server: PageServer) -> None:
    with tab(browser, server.url) as opened:
        page = opened.page
        send(page, "markdown")
        body = answers(page)
        expect(body.locator("h3")).to_have_text("A heading")
        expect(body.locator("strong")).to_have_text("bold")
        expect(body.locator("p code")).to_have_text("code")
        expect(body.locator("a")).to_have_attribute("rel", "noopener noreferrer")
        expect(body.locator("li")).to_have_count(5)
        expect(body.locator("ul ul li")).to_have_text("nested")
        expect(body.locator("td")).to_have_text(["1", "2"])
        expect(body.locator("pre")).to_have_text('def f(x):\n    return "<script>" + x')
        expect(body.locator("p").last).to_have_text("Done: é 漢 🙂.")
        expect(body).to_contain_text("<b>no markup</b>")
        assert body.locator("img, b, script").count() == 0
        assert page.title() != "pwned"
        body.locator("button[data-action=copy-code]").click()
        expect(page.locator("#status")).to_have_text("Copied.")


def test_thoughts_and_tool_calls(browser: Browser, server: PageServer) -> None:
    def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return f"data: {json.dumps({'choices': [choice], **more})}\n\n"

    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    tokens = [
        {"text": t, "origin": "accepted", "drafter": "model"}
        for t in ("<think>", "Hm.", "</think>", "\n\n", "Yes")
    ]
    body = (
        chunk({"role": "assistant", "content": ""})
        + chunk({"reasoning_content": "Hm."}, tokens=tokens, rounds=[])
        + chunk({"content": "Yes"})
        + chunk({"tool_calls": [call]})
        + chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"city": "Oslo"}'}}]})
        + chunk({}, "tool_calls")
        + "data: [DONE]\n\n"
    )

    def answer(route: Route) -> None:
        route.fulfill(status=200, content_type="text/event-stream", body=body)

    with tab(browser, server.url) as opened:
        page = opened.page
        page.route("**/v1/chat/completions", answer)
        send(page, "what is the weather?")
        expect(page.locator("details.reasoning summary")).to_have_text("Thoughts")
        expect(page.locator("details.reasoning .token")).to_have_text("Hm.")
        expect(page.locator("details.reasoning .token")).not_to_be_visible()
        page.click("details.reasoning summary")
        expect(page.locator("details.reasoning .token")).to_be_visible()
        expect(answers(page)).to_have_text("Yes")
        assert answers(page).locator(".token").get_attribute("title") == "accepted guess by model"
        expect(page.locator(".call")).to_have_text('Tool call: weather{"city": "Oslo"}')


def test_a_server_with_a_key(browser: Browser) -> None:
    with page_server(api_keys=("secret",)) as server, tab(browser, server.url, expected=("401",)) as opened:
        page = opened.page
        expect(page.locator("#key")).to_be_visible()
        page.fill("#key-text", "wrong")
        page.press("#key-text", "Enter")
        expect(page.locator("#key-error")).to_have_text("This key is not the right one.")
        page.fill("#key-text", "secret")
        page.press("#key-text", "Enter")
        expect(page.locator("#key")).not_to_be_visible()
        expect(page.locator("#server-model")).to_have_text("tiny")
        send(page, "hello")
        expect(answers(page)).to_have_text("You said: hello. ")
        assert "secret" not in json.dumps(page.context.storage_state())


def test_under_a_path_of_another_application(browser: Browser) -> None:
    with page_server(mount="/models/box") as server, tab(browser, server.url) as opened:
        expect(opened.page.locator("#server-state")).to_have_text("ready")
        send(opened.page, "hello")
        expect(answers(opened.page)).to_have_text("You said: hello. ")


def test_behind_a_proxy_with_a_root_path(browser: Browser) -> None:
    with page_server(root_path="/box") as server, tab(browser, f"{server.url}box/") as opened:
        send(opened.page, "hello")
        expect(answers(opened.page)).to_have_text("You said: hello. ")


def test_failures_say_what_to_do(browser: Browser, server: PageServer) -> None:
    with tab(browser, server.url) as opened:
        page = opened.page
        send(page, "please fail")
        expect(page.locator(".error:visible")).to_contain_text("the device burned down")
        expect(page.locator(".error:visible button")).to_have_text("Try again")
        expect(answers(page)).to_have_text("You sai")  # what came is kept
    with page_server(n_ctx=16) as small, tab(browser, small.url, expected=("400",)) as opened:
        send(opened.page, "longer than sixteen tokens")
        expect(opened.page.locator(".error:visible")).to_contain_text("--ctx-size")


def test_loading_and_a_server_that_comes_back(browser: Browser) -> None:
    expected = ("503", "ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET")
    with page_server(ready=False) as server, tab(browser, server.url, expected=expected) as opened:
        page = opened.page
        server.engine._set_status(EngineState.LOADING, "target model tiny.gguf", 0.42)
        expect(page.locator("#banner-text")).to_contain_text("The model is loading")
        expect(page.locator("#banner-progress")).to_have_attribute("value", "0.42")
        expect(page.locator("#send")).to_be_disabled()
        server.engine.become_ready()
        expect(page.locator("#banner")).not_to_be_visible()
        send(page, "hello")
        port = server.port
        server.stop()
        send(page, "are you there?")
        expect(page.locator(".error:visible")).to_contain_text("cannot be reached")
        expect(page.locator("#banner-text")).to_contain_text("cannot be reached")
        with page_server(port=port):
            expect(page.locator("#server-state")).to_have_text("ready")
            page.click(".error:visible button")
            expect(answers(page).last).to_have_text("You said: are you there?. ")
