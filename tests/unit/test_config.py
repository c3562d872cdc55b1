"""Settings: one description each, a flag beats its variable, and a bad value names where it was given."""

from __future__ import annotations

import logging
import re

import msgspec
import pytest

from lucebox import flags
from lucebox.config import (
    DEFAULT_DRAFT_MODEL,
    EngineConfig,
    EngineOptions,
    ModelConfig,
    ServerOptions,
    parse_server_args,
)
from lucebox.errors import ConfigError
from lucebox.flags import Choice, Integer, IntegerOr, PathPrefix, Switch, TextList

SETTINGS = list(flags.settings(ServerOptions))


def a_value(setting: flags.Setting) -> str:
    """A text the setting takes that is not its default."""
    if isinstance(setting.flag.kind, Integer | IntegerOr):
        return str(setting.flag.kind.low + 2)
    if isinstance(setting.flag.kind, Choice):
        return next(word for word in setting.flag.kind.words if word != setting.default)
    if isinstance(setting.flag.kind, PathPrefix):
        return "/some/thing"
    return "on" if isinstance(setting.flag.kind, Switch) else "something"


def value_of(options: ServerOptions, field: str) -> object:
    return getattr(options if hasattr(options, field) else options.engine, field)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.field)
def test_flag_and_variable_set_the_field_and_the_flag_wins(setting: flags.Setting) -> None:
    text = a_value(setting)
    by_flag = parse_server_args([setting.option, text], {})
    by_variable = parse_server_args([], {setting.variable: text})
    assert setting.flag.kind.parse(text) == value_of(by_flag, setting.field)
    assert by_variable == by_flag
    other = {setting.variable: "\0 not a value of anything"}
    assert parse_server_args([f"{setting.option}={text}"], other) == by_flag


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.field)
def test_an_empty_variable_is_unset(setting: flags.Setting) -> None:
    assert parse_server_args([], {setting.variable: ""}) == parse_server_args([], {})


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.field)
def test_a_bad_value_names_flag_or_variable_and_what_is_allowed(setting: flags.Setting) -> None:
    bad = " " if isinstance(setting.flag.kind, flags.Text | TextList) else "nonsense"
    repeated = "" if setting.flag.is_secret else re.escape(repr(bad))
    for argv, environ, name in (
        ([setting.option, bad], {}, setting.option),
        ([], {setting.variable: bad}, setting.variable),
    ):
        with pytest.raises(ConfigError, match=rf"^{name} must be .*{repeated}"):
            parse_server_args(argv, environ)


def test_lists_come_by_comma_or_by_several_flags() -> None:
    options = parse_server_args(["--cors-origin", "a, b", "--cors-origin=c"], {})
    assert options.cors_origin == ("a", "b", "c")
    assert parse_server_args([], {"LUCEBOX_CORS_ORIGIN": "a,b"}).cors_origin == ("a", "b")


def test_a_key_is_in_no_complaint() -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_server_args(["--api-key", "s3cret,,other"], {})
    assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize("text", ["llm", "/a/../b", "/a b", "//host", "/ä", "/a?b", "/a/./b"])
def test_root_paths_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="--root-path must be a URL's path"):
        parse_server_args(["--root-path", text], {})


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "1e3", "", "99999999999999999999"])
def test_numbers_out_of_range_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--threads must be a whole number from 1 to 1024"):
        parse_server_args(["--threads", text], {})


def test_options_made_in_python_are_checked_too() -> None:
    with pytest.raises(ConfigError, match="threads must be a whole number"):
        EngineOptions(threads=0)
    with pytest.raises(ConfigError, match="parallel must be a whole number"):
        EngineOptions(parallel=True)
    with pytest.raises(ConfigError, match="kv_type must be one of f32, f16, q8_0, q4_0"):
        EngineOptions(kv_type="q5_0")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("argv", "draft"),
    [
        ([], DEFAULT_DRAFT_MODEL),
        (["--target-model", "a.gguf"], None),
        (["--draft-model", "b.gguf"], "b.gguf"),
        (["--draft-model", "none"], "none"),
        (["--drafter", "none"], None),
        (["--drafter", "suffix"], None),
        (["--drafter", "prediction"], None),
        (["--drafter", "ngram:n=3,n_min=2+suffix"], None),
        (["--drafter", "suffix,model"], DEFAULT_DRAFT_MODEL),
        (["--target-model", "a.gguf", "--draft-model", "b.gguf"], "b.gguf"),
    ],
)
def test_the_default_draft_model_comes_with_the_default_target_only(
    argv: list[str], draft: str | None
) -> None:
    assert parse_server_args(argv, {}).engine.draft_model == draft


def test_a_draft_model_is_never_silently_ignored() -> None:
    with pytest.raises(ConfigError, match=r"b\.gguf.*`none`"):
        parse_server_args(["--draft-model", "b.gguf", "--drafter", "none"], {})


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--thread", "2"], "'--thread' (did you mean --threads?)"),
        (["--ctx-len=8"], "'--ctx-len=8' (did you mean --ctx-size?)"),
        (["a.gguf", "b.gguf"], "'b.gguf'"),
        (["--port"], "--port: expected one argument"),
    ],
)
def test_unknown_arguments_raise_with_a_guess(argv: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        parse_server_args(argv, {})


def test_a_misspelt_variable_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    environ = {"LUCEBOX_TREADS": "2", "LUCEBOX_CACHE": "/tmp", "HOME": "/"}
    with caplog.at_level(logging.WARNING):
        parse_server_args([], environ)
    assert len(caplog.records) == 1
    assert "LUCEBOX_TREADS means nothing to Lucebox; did you mean LUCEBOX_THREADS?" in caplog.text


def test_help_names_every_flag_variable_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        parse_server_args(["--help"], {})
    assert exit_info.value.code == 0
    text = "".join(capsys.readouterr().out.split())
    for setting in SETTINGS:
        assert setting.option in text
        assert f"[{setting.variable};default:{''.join(setting.default_text.split())}]" in text


def test_a_config_survives_the_wire() -> None:
    target = ModelConfig(
        path="/m/a.gguf",
        device="CUDA0,CPU",
        n_threads=2,
        kv_type="f16",
        split=(3.0, 1.0),
        n_cpu_layers=2,
        cpu_moe=True,
        cores=(0, 2),
    )
    config = EngineConfig(
        target=target,
        draft=None,
        overlap="off",
        workers=("10.0.0.7:50052",),
        fit=True,
        drafters=(),
        acceptance="auto",
        draft_length="fixed:n=4",
        n_ctx=512,
        n_parallel=1,
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=EngineConfig) == config
    with pytest.raises(AttributeError):
        config.n_ctx = 8  # type: ignore[misc]
    with pytest.raises(msgspec.ValidationError, match="surprise"):
        msgspec.json.decode(
            b'{"path":"","device":"","n_threads":1,"kv_type":"f16","surprise":1}', type=ModelConfig
        )
