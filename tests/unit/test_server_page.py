"""The page's files over HTTP, what they may reach, and the report of tokens in streams."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

import pytest

from lucebox.core import Origin
from lucebox.engine.messages import Event, StepEvent, Submit
from lucebox.engine.timings import DraftedRound, RoundTrace, Work
from lucebox.server.page import assets
from tests.support.scripted_engine import steps
from tests.support.serving import CHAT, HELLO, TEXT, ask, events, fetch
from tests.support.source_tree import ROOT

TRACED = {"messages": HELLO, "stream": True, "stream_options": {"include_tokens": True}}


def test_the_page_and_its_files() -> None:
    page = fetch("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    named = re.findall(r'(?:src|href)="(static/[^"]+)"', page.text)
    assert len(named) > 5
    for name in named:
        response = fetch(f"/{name}")
        assert response.status_code == 200
        assert response.headers["content-type"].split(";")[0] in (
            "text/css",
            "text/javascript",
            "image/svg+xml",
        )


def test_only_scripts_and_styles_of_its_own() -> None:
    policy = dict(
        part.strip().partition(" ")[::2] for part in fetch("/").headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in str(policy)
    assert fetch("/static/main.js").headers["x-content-type-options"] == "nosniff"


def test_files_are_kept_until_they_change() -> None:
    first = fetch("/static/main.js")
    assert first.headers["cache-control"] == "no-cache"
    etag = first.headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = fetch("/static/main.js", headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
    assert fetch("/static/main.js", headers={"If-None-Match": '"other"'}).status_code == 200
    assert fetch("/static/base.css").headers["etag"] != etag


@pytest.mark.parametrize(
    "path", ["/static/", "/static/none.js", "/static/..%2fpage.py", "/static/../page.py"]
)
def test_nothing_but_the_files(path: str) -> None:
    response = fetch(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "unknown_url"


def test_head_and_other_methods() -> None:
    assert fetch("/", method="HEAD").status_code == 200
    assert fetch("/", method="POST").status_code == 405


def test_the_page_opens_without_a_key() -> None:
    for path in ("/", "/static/main.js", "/favicon.ico", "/health"):
        assert fetch(path, api_keys=("secret",)).status_code == 200
    assert fetch("/v1/models", api_keys=("secret",)).status_code == 401


def test_all_files_are_packaged() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    folder = ROOT / "lucebox" / "server"
    packaged = {
        path.name for glob in settings["package-data"]["lucebox.server"] for path in folder.glob(glob)
    }
    assert set(assets()) == packaged == {path.name for path in (folder / "static").iterdir()}


def test_no_file_names_an_address_of_elsewhere() -> None:
    for name, asset in assets().items():
        text = asset.body.decode()
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not {a for a in addresses if not a.startswith(r"https?:\/\/")}, name


def test_no_script_makes_markup_or_code_of_text() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser"
    )
    for name, asset in assets().items():
        assert not forbidden.search(asset.body.decode()), name


def test_no_style_or_script_stands_in_the_markup() -> None:
    markup = assets()["index.html"].body.decode()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", markup)


def drafted(submit: Submit) -> Iterator[Event]:
    """A plain token, then a draft of 3 of which 2 stand, then a character in two tokens."""
    (first,) = list(steps(submit, [b"H"], None))
    yield first
    yield StepEvent(
        id=submit.id,
        tokens=list(b"ey!"),
        origins=[Origin.ACCEPTED, Origin.ACCEPTED, Origin.CORRECTED],
        drafted=[DraftedRound("suffix", 3, 3, 2)],
        round=2,
        time_ms=20.0,
        traces=[
            RoundTrace(2, 3, DraftedRound("suffix", 3, 3, 2), 1.5, 8.0, 20.0, [Work("draft", 10.0, 11.5)])
        ]
        if submit.traced
        else [],
    )
    (last,) = list(steps(submit, ["é".encode()]))
    yield last


def test_streams_say_where_tokens_came_from() -> None:
    chunks = events(ask(drafted, CHAT, TRACED))
    tokens = [token for chunk in chunks for token in chunk.get("tokens", ())]
    assert [(t["text"], t["origin"], t["drafter"]) for t in tokens] == [
        ("H", "plain", None),
        ("e", "accepted", "suffix"),
        ("y", "accepted", "suffix"),
        ("!", "corrected", None),
        ("", "plain", None),
        ("é", "plain", None),
        ("", "plain", None),  # the end
    ]
    rounds = [r for chunk in chunks for r in chunk.get("rounds", ())]
    assert rounds == [
        {
            "index": 2,
            "n_tokens": 3,
            "drafter": "suffix",
            "n_drafted": 3,
            "depth": 3,
            "n_accepted": 2,
            "draft_ms": 1.5,
            "verify_ms": 8.0,
            "time_ms": 20.0,
            "work": [{"party": "draft", "start_ms": 10.0, "end_ms": 11.5, "is_ahead": False}],
        }
    ]
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == "".join(token["text"] for token in tokens) == "Hey!é"


def test_ordinary_streams_say_nothing_of_it() -> None:
    chunks = events(ask(drafted, CHAT, {"messages": HELLO, "stream": True}))
    assert not any("tokens" in chunk or "rounds" in chunk for chunk in chunks)


@pytest.mark.parametrize("value", [1, "yes", []])
def test_wrong_values_are_named(value: object) -> None:
    response = ask(drafted, CHAT, {**TRACED, "stream_options": {"include_tokens": value}})
    assert response.status_code == 400
    assert "include_tokens" in response.text


def test_completions_refuse_the_report() -> None:
    body = {"prompt": "Hi", "stream": True, "stream_options": {"include_tokens": True}}
    response = ask(drafted, TEXT, body)
    assert response.status_code == 400
    assert "include_tokens" in response.json()["error"]["message"]
