"""Sending a report by mail, where a server is configured."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from frazil.errors import Unavailable

_PATIENCE_SECONDS = 20


class MailSettings(BaseModel):
    """`[mail]`: reports are sent only if `host`, `sender` and `recipients` are set."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    host: str = Field(default="", description="The SMTP server; none where it is empty.")
    port: int = Field(default=587, ge=1, le=65535, description="Its port.")
    security: Literal["starttls", "tls", "none"] = Field(
        default="starttls", description="How the connection is encrypted; `none` only for a server on this machine."
    )
    user: str = Field(default="", description="Who signs in; nobody where it is empty.")
    password: SecretStr | None = Field(default=None, description="Only from FRAZIL_MAIL__PASSWORD.")
    sender: str = Field(default="", description="From whom reports are.")
    recipients: tuple[str, ...] = Field(default=(), description="To whom reports go.")

    @property
    def is_on(self) -> bool:
        return bool(self.host and self.sender and self.recipients)


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
