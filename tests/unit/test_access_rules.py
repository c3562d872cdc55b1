"""Files of API keys, and origins."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lucebox.access_rules import parse_origin, read_key_file
from lucebox.errors import ConfigError


def key_file(folder: Path, text: str | bytes, mode: int = 0o600) -> str:
    path = folder / "keys"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return str(path)


def test_a_key_a_line_and_comments(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "# ours\n\nsk-one\n  sk-two  # the laptop's\r\nsk#three\n"
    assert read_key_file(key_file(tmp_path, text)) == ("sk-one", "sk-two", "sk#three")
    assert not caplog.records


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "has no key"), ("# nothing\n", "has no key"), ("one two\n", "key 1"), (b"\xff\xfe\n", "UTF-8")],
)
def test_files_without_usable_keys(tmp_path: Path, text: str | bytes, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refusal:
        read_key_file(key_file(tmp_path, text))
    assert "two" not in str(refusal.value)


def test_a_file_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="too long"):
        read_key_file(key_file(tmp_path, b"x" * (2**20 + 1)))


@pytest.mark.parametrize("name", ["missing", "."])
def test_files_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot read --api-key-file"):
        read_key_file(str(tmp_path / name))


def test_files_that_others_read_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert read_key_file(key_file(tmp_path, "sk-one", 0o644)) == ("sk-one",)
    assert "anybody" in caplog.text
    assert "sk-one" not in caplog.text


def test_files_that_others_write_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="chmod 600"):
        read_key_file(key_file(tmp_path, "sk-one", 0o602))


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("*", "*"),
        ("https://Chat.Example", "https://chat.example"),
        ("https://chat.example:443/", "https://chat.example"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_origins(text: str, origin: str) -> None:
    assert parse_origin(text) == origin


@pytest.mark.parametrize(
    "text", ["chat.example", "https://a/b", "ftp://a", "https://", "null", "https://a b"]
)
def test_what_is_no_origin(text: str) -> None:
    with pytest.raises(ConfigError, match="--cors-origin"):
        parse_origin(text)
