"""Sending a report by mail, where a server is configured."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage

from frazil.errors import Unavailable
from frazil.pipeline.settings import MailSettings

_PATIENCE_SECONDS = 20


def send_mail(settings: MailSettings, *, subject: str, text: str, html: str) -> None:
    """Send one report; `Unavailable` where the server does not take it."""
    message = EmailMessage()
    message["Subject"] = subject
    message["From"] = settings.sender
    message["To"] = ", ".join(settings.recipients)
    message.set_content(text)
    message.add_alternative(html, subtype="html")
    try:
        with _connected(settings) as server:
            if settings.user:
                server.login(settings.user, settings.password.get_secret_value() if settings.password else "")
            server.send_message(message)
    except (OSError, smtplib.SMTPException) as error:
        raise Unavailable(
            f"the report could not be sent by {settings.host}:{settings.port} ({type(error).__name__})",
            code="mail_failed",
            hint="check [mail] in frazil.toml and FRAZIL_MAIL__PASSWORD; the report is in the reports folder",
        ) from error


def _connected(settings: MailSettings) -> smtplib.SMTP:
    context = ssl.create_default_context()
    if settings.security == "tls":
        return smtplib.SMTP_SSL(settings.host, settings.port, timeout=_PATIENCE_SECONDS, context=context)
    server = smtplib.SMTP(settings.host, settings.port, timeout=_PATIENCE_SECONDS)
    if settings.security == "starttls":
        server.starttls(context=context)
    return server
