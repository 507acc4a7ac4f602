"""Handler of Postgres jobs: the archive of a night with its report, and refreshes of single tables."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frazil.errors import FrazilError, NotFound
from frazil.pipeline.jobs.mail import send_mail
from frazil.pipeline.settings import MailSettings, SourceSettings
from frazil.pipeline.sources.postgres.archive import archive_database
from frazil.pipeline.sources.postgres.refresh import LoadServices, refresh_tables
from frazil.pipeline.sources.postgres.report import Night
from frazil.pipeline.sources.postgres.source_settings import read_dsn
from frazil.registry import Job, ProgressCallback
from frazil.requests import PostgresRequest

log = logging.getLogger(__name__)


class PostgresLoads:
    def __init__(
        self,
        services: LoadServices,
        sources: Mapping[str, SourceSettings],
        *,
        reports: Path,
        mail: MailSettings | None = None,
    ) -> None:
        self._services = services
        self._sources = sources
        self._reports = reports
        self._mail = mail or MailSettings()

    def cancel(self) -> None:
        self._services.tasks.cancel()

    def run(self, job: Job, report_progress: ProgressCallback) -> dict[str, Any]:
        request = PostgresRequest.parse(job.params)
        settings = self._source(request)
        dsn = read_dsn(request.source, settings)
        if request.what != "archive":
            return refresh_tables(self._services, job, request, settings, dsn, report_progress)
        night = archive_database(
            self._services.lake, self._services.tasks, job, request, settings, dsn, report_progress
        )
        return {**night.body(), **self._write_report(night, job)}

    def _source(self, request: PostgresRequest) -> SourceSettings:
        found = self._sources.get(request.source)
        if found is None:
            raise NotFound(
                f"no source is named {request.source!r}",
                code="source_not_found",
                hint=f"write [sources.{request.source}] with dsn_env or dsn_file into frazil.toml, then start again",
            )
        return found

    def _write_report(self, night: Night, job: Job) -> dict[str, Any]:
        """Write the report, and send it where a mail server is configured. A mail that fails is only noted."""
        name = f"archive-{night.source}-{night.night}-{job.id.partition('-')[2]}"
        paths = {"text": self._reports / f"{name}.txt", "html": self._reports / f"{name}.html"}
        self._reports.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path, content in ((paths["text"], night.text()), (paths["html"], night.html())):
            draft = path.with_name(f".{path.name}.{os.getpid()}")
            draft.write_text(content, encoding="utf-8")
            draft.replace(path)
        body: dict[str, Any] = {"report": {kind: str(path) for kind, path in paths.items()}, "mailed": False}
        if self._mail.is_on:
            try:
                send_mail(self._mail, subject=night.title, text=night.text(), html=night.html())
                body["mailed"] = True
            except FrazilError as error:
                log.warning("report mail failed: %s", error)
                body["mail_error"] = error.message
        return body
