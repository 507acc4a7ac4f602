"""Mail: a report is sent by the configured server."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage

from frazil.errors import Unavailable
from frazil.pipeline.settings import MailSettings

_PATIENCE_SECONDS = 20


def send_mail(settings: MailSettings, *, subject: str, text: str, html: str) -> None:
    """Send one report; `Unavailable` where the server does not take it, or not for everybody."""
    try:
        message = _message(settings, subject, text, html)
        with _connected(settings) as server:
            if settings.user:
                server.login(settings.user, settings.password.get_secret_value() if settings.password else "")
            refused = server.send_message(message)
    # A header or a password that the protocol cannot carry is a ValueError, whose text may quote it.
    except (OSError, smtplib.SMTPException, ValueError) as error:
        raise _failed(settings, _reason(error)) from None
    if refused:
        raise _failed(settings, f"it goes to the others, but not to {', '.join(sorted(refused))}")


def _message(settings: MailSettings, subject: str, text: str, html: str) -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = subject
    message["From"] = settings.sender
    message["To"] = ", ".join(settings.recipients)
    message.set_content(text)
    message.add_alternative(html, subtype="html")
    return message


@contextmanager
def _connected(settings: MailSettings) -> Iterator[smtplib.SMTP]:
    """A connection that is as safe as the settings demand, before anything is sent on it."""
    context = ssl.create_default_context()
    if settings.security == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(
            settings.host, settings.port, timeout=_PATIENCE_SECONDS, context=context
        )
    else:
        server = smtplib.SMTP(settings.host, settings.port, timeout=_PATIENCE_SECONDS)
    with server:
        if settings.security == "starttls":
            server.starttls(context=context)
        yield server


def _reason(error: Exception) -> str:
    """The reason, without text of the server: that may repeat the password."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate cannot be trusted: {error.verify_message}"
        case ssl.SSLError():
            return "it does not speak TLS at this port"
        case smtplib.SMTPAuthenticationError():
            return f"it does not accept the user or the password ({error.smtp_code})"
        case smtplib.SMTPNotSupportedError():
            return "it offers no encryption or no sign-in"
        case smtplib.SMTPRecipientsRefused():
            return f"it does not take mail for {', '.join(sorted(error.recipients))}"
        case smtplib.SMTPResponseException():
            return f"it answered {error.smtp_code} ({type(error).__name__})"
        case ValueError():
            return "an address, the user or the password has characters that a mail server does not take"
        case _:
            return f"{type(error).__name__}"


def _failed(settings: MailSettings, reason: str) -> Unavailable:
    return Unavailable(
        f"the report could not be sent by {settings.host}:{settings.port}: {reason}",
        code="mail_failed",
        hint="check [mail] in frazil.toml and FRAZIL_MAIL__PASSWORD; the report is in the reports folder",
    )
