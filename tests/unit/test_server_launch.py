"""Certificates that cannot be served, and an engine that fails for good."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lucebox.engine.client import EngineState, EngineStatus
from lucebox.errors import ConfigError
from lucebox.server import launch
from tests.support.serving import server_config


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """cert.pem and key.pem belong together, other.pem is another key, locked.pem one with a password."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost")
    openssl("req", "-x509", *kind, "-keyout", "key.pem", "-out", "cert.pem")
    openssl("req", "-x509", *kind, "-keyout", "other.pem", "-out", "other-cert.pem")
    openssl("pkey", "-in", "key.pem", "-aes128", "-passout", "pass:secret", "-out", "locked.pem")
    (folder / "garbage.pem").write_text("no PEM\n")
    return folder


def test_a_certificate_and_its_key(files: Path) -> None:
    launch.check_certificate(None, None)
    launch.check_certificate(str(files / "cert.pem"), str(files / "key.pem"))


@pytest.mark.parametrize(
    ("certificate", "key", "says"),
    [
        (None, "key.pem", "give --ssl-certfile"),
        ("missing.pem", "key.pem", "cannot read"),
        ("cert.pem", "missing.pem", "cannot read"),
        ("cert.pem", None, "belong together"),
        ("cert.pem", "other.pem", "belong together"),
        ("garbage.pem", "key.pem", "belong together"),
        ("cert.pem", "garbage.pem", "belong together"),
        ("cert.pem", "locked.pem", "has a password"),
        (".", "key.pem", "cannot read"),
    ],
)
def test_files_that_https_cannot_be_served_with(
    files: Path, certificate: str | None, key: str | None, says: str
) -> None:
    certfile, keyfile = (None if name is None else str(files / name) for name in (certificate, key))
    with pytest.raises(ConfigError, match=says):
        launch.check_certificate(certfile, keyfile)


def test_an_engine_that_fails_for_good_ends_the_server() -> None:
    """So that a service manager starts another; one that is away is tried again by ourselves."""
    with launch.listen("127.0.0.1", 0) as listener:
        run = launch.Run(server_config(), listener)
        for state in (EngineState.RESTARTING, EngineState.AWAY):
            run._on_status(EngineStatus(state))
            assert not run._server.should_exit
        run._on_status(EngineStatus(EngineState.FAILED))
        assert run._server.should_exit
