"""Reports by mail: to a server that wants encryption and a password; and what is said when it will not have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from frazil.errors import Unavailable
from frazil.pipeline import MailSettings
from frazil.pipeline.jobs.mail import send_mail
from tests.flow.mailbox import Guard, Mailbox, certificate, running_mailbox

PASSWORD = "hush-hush"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mail")


@pytest.fixture(scope="module")
def trusted(folder: Path) -> Path:
    return certificate(folder)


@pytest.fixture(autouse=True)
def _trust(trusted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))


def settings(mailbox: Mailbox, **more: Any) -> MailSettings:
    words = {
        "host": "127.0.0.1",
        "port": mailbox.port,
        "user": "frazil",
        "password": SecretStr(PASSWORD),
        "sender": "frazil@example.org",
        "recipients": ("dba@example.org", "boss@example.org"),
        **more,
    }
    return MailSettings.model_validate(words)


def send(wanted: MailSettings) -> None:
    send_mail(wanted, subject="Archive of shop", text="3 tables", html="<p>3 tables</p>")


def refused(wanted: MailSettings) -> str:
    with pytest.raises(Unavailable) as failed:
        send(wanted)
    error = failed.value
    told = f"{error.message} {error.hint} {error.details} {error.__cause__}"
    assert error.code == "mail_failed" and PASSWORD not in told and str(wanted.port) in error.message
    return error.message


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_report_goes_out_encrypted_and_signed_in(trusted: Path, security: str) -> None:
    guard = Guard(trusted, "frazil", PASSWORD, from_the_start=security == "tls")
    with running_mailbox(guard) as mailbox:
        send(settings(mailbox, security=security))
    (message,) = mailbox.messages
    assert mailbox.signed_in == ["frazil"] and message["To"] == "dba@example.org, boss@example.org"
    parts = [part.get_content().strip() for part in message.iter_parts()]
    assert parts == ["3 tables", "<p>3 tables</p>"]
    verbs = [line.split()[0].upper() for line in mailbox.in_the_clear]
    assert verbs == ([] if security == "tls" else [b"EHLO", b"STARTTLS"]), "nothing else was said in the clear"


@pytest.mark.parametrize("security", ["starttls", "tls"])
@pytest.mark.parametrize("whose", ["of nobody known", "of another"])
def test_a_certificate_that_is_not_to_be_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, whose: str, security: str
) -> None:
    other = certificate(folder, "mail.example.org")
    if whose == "of another":
        monkeypatch.setenv("SSL_CERT_FILE", str(other))
    guard = Guard(other, "frazil", PASSWORD, from_the_start=security == "tls")
    with running_mailbox(guard) as mailbox:
        said = refused(settings(mailbox, security=security))
    assert "certificate cannot be trusted" in said and ("self-signed" in said or "IP address mismatch" in said)
    assert mailbox.signed_in == [] and mailbox.messages == []


def test_a_password_that_is_wrong(trusted: Path) -> None:
    """The server of this test repeats what it was told; we do not."""
    with running_mailbox(Guard(trusted, "frazil", "another")) as mailbox:
        assert "does not accept the user or the password (535)" in refused(settings(mailbox))
        unspeakable = settings(mailbox, password=SecretStr("hush-hüsh"))
        assert "characters" in refused(unspeakable) and "ü" not in refused(unspeakable)
    assert mailbox.messages == []


def test_a_server_without_encryption_is_told_nothing() -> None:
    with running_mailbox() as mailbox:
        assert "no encryption" in refused(settings(mailbox))
        assert "does not speak TLS" in refused(settings(mailbox, security="tls"))
    assert not any(word in line for line in mailbox.in_the_clear for word in (b"AUTH", b"MAIL"))


def test_those_who_get_no_mail_are_named(trusted: Path) -> None:
    with running_mailbox(refuses="boss@example.org") as mailbox:
        plain = settings(mailbox, security="none", user="")
        assert "not to boss@example.org" in refused(plain)
        alone = plain.model_copy(update={"recipients": ("boss@example.org",)})
        assert "does not take mail for boss@example.org" in refused(alone)
    assert len(mailbox.messages) == 1, "the other had it"


def test_a_server_that_is_away(trusted: Path) -> None:
    with running_mailbox() as mailbox:
        gone = settings(mailbox)
    assert "ConnectionRefusedError" in refused(gone)
