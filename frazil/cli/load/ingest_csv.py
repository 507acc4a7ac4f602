"""`frazil ingest csv`: files become rows of a table, with a report at the end."""

from __future__ import annotations

import glob
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.job import await_job, run_job
from frazil.cli.options import SharedOptions
from frazil.cli.output import Output, counted, print_error, print_facts
from frazil.cli.verb import verb
from frazil.errors import FrazilError, InvalidInput, NotFound

if TYPE_CHECKING:
    from frazil.client import Client

_LOOK_SECONDS = 1.0
_ENDINGS = (".csv", ".tsv", ".txt", ".psv")
_PACKED = (".gz", ".bz2", ".zst")

_Mark = tuple[int, int]


@verb
def csv(
    options: SharedOptions,
    output: Output,
    paths: Annotated[list[str], typer.Argument(metavar="PATH|GLOB|DIR", help="Files, patterns or folders.")],
    table: Annotated[
        str, typer.Option("--table", metavar="TABLE", help="The table; created from the files if it does not exist.")
    ],
    mode: Annotated[str, typer.Option(help="append, or replace all rows of the table.")] = "append",
    delimiter: Annotated[str | None, typer.Option(help="Detected by default; `tab` for a tab.")] = None,
    quote: Annotated[str | None, typer.Option(help='Detected by default; "" if nothing is quoted.')] = None,
    escape: Annotated[str | None, typer.Option(help="Only if quotes are escaped, not doubled.")] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether line 1 has the column names.")
    ] = None,
    encoding: Annotated[str | None, typer.Option(help="Detected by default; as in latin-1.")] = None,
    null: Annotated[list[str] | None, typer.Option("--null", help="A word that means null, as NA.")] = None,
    column: Annotated[
        list[str] | None, typer.Option("--column", metavar="NAME=TYPE", help="Declare a type instead of inferring it.")
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="NAME=JSON", help='A check, as in amount=\'{"range": {"min": 0}}\'.'),
    ] = None,
    max_bad: Annotated[str, typer.Option(help="Bad records that a load may have: a number or a share, as 5%.")] = "5%",
    upload: Annotated[
        bool | None, typer.Option("--upload/--no-upload", help="Upload the files. Default: only to a remote frazil.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Keep running, and load new and changed files.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for a load.")] = 86_400.0,
) -> None:
    """Load CSV files: dialect and types are detected, bad records quarantined, known files skipped."""
    columns = _columns(column or [], check or [])
    wanted: dict[str, Any] = {
        "mode": mode,
        "delimiter": delimiter,
        "quote": quote,
        "escape": escape,
        "header": header,
        "encoding": encoding,
        "null_words": null,
        "max_bad": max_bad,
    }
    wanted = {name: value for name, value in wanted.items() if value is not None}
    with options.connect() as client:
        remote = not _is_local(client.url) if upload is None else upload
        if remote and columns:
            raise InvalidInput(
                "an upload cannot declare columns",
                code="bad_load",
                hint=f"create the table first: frazil tables create {table} --column …",
            )
        load = _CsvLoad(client, output, table, wanted if remote else {**wanted, "columns": columns}, remote, timeout)
        if watch:
            _follow(paths, load)
        elif files := expanded(paths):
            load(files)
        else:
            raise NotFound(f"there is no file at {' '.join(paths)}", code="no_such_file", hint="check the path")


class _CsvLoad:
    """Loads of files into one table, each waited for and reported."""

    def __init__(
        self, client: Client, output: Output, table: str, options: dict[str, Any], upload: bool, timeout: float
    ) -> None:
        self._client = client
        self._output = output
        self._table = table
        self._options = options
        self._upload = upload
        self._timeout = timeout

    def __call__(self, files: list[str]) -> None:
        """Load, wait and report. An upload is a load for each file."""
        if not self._upload:
            body = {"table": self._table, "files": files, **self._options}
            run_job(self._client, self._output, "csv", body, print_report, timeout=self._timeout)
            return
        for number, file in enumerate(files):
            # Only the first file replaces what was there before.
            mode = {} if number == 0 else {"mode": "append"}
            job = self._client.loads.upload_csv(self._table, file, **{**self._options, **mode})
            await_job(self._client, self._output, job, print_report, timeout=self._timeout)


def print_report(done: dict[str, Any]) -> None:
    """The load report, for people."""
    loaded = [file for file in done["files"] if file["state"] == "loaded"]
    known = len(done["files"]) - len(loaded)
    if not loaded:
        print(f"{done['table']}: nothing to do, {counted(known, 'file')} already loaded")
        return
    what = f"{counted(done['rows_out'], 'row')} from {counted(len(loaded), 'file')}"
    print(f"{done['table']}: {what} in {done['seconds']:.1f} s")
    words = {
        "rows in": f"{done['rows_in']:,}",
        "rows out": f"{done['rows_out']:,}",
        "quarantined": f"{done['quarantined']:,}",
        "already loaded": counted(known, "file") if known else "",
        "snapshot": done["snapshot_id"],
        "speed": f"{done['mb_per_second']:.3g} MB/s",
        "load": done["load"],
    }
    print_facts(words, width=15)
    if done["quarantined"]:
        by_column = ", ".join(f"{column} ({number:,})" for column, number in done.get("by_column", {}).items())
        print(f"  bad because of  {by_column}")
        where = f"{done['table']}__quarantine WHERE load = '{done['load']}'"
        print(f'  look at them    frazil sql "SELECT * FROM {where}"')  # noqa: S608 - shown, not run


def expanded(paths: list[str]) -> list[str]:
    """The files behind paths, patterns and folders, each once, in order."""
    found: list[str] = []
    for path in paths:
        if Path(path).is_dir():
            found += sorted(str(file) for file in Path(path).iterdir() if _is_csv(file))
        elif glob.has_magic(path) and not Path(path).exists():
            found += sorted(file for file in glob.glob(path, recursive=True) if Path(file).is_file())
        else:
            found.append(path)
    return list(dict.fromkeys(str(Path(file).absolute()) for file in found))


def _is_csv(file: Path) -> bool:
    name = file.name.lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    return file.is_file() and not name.startswith(".") and name.endswith(_ENDINGS)


def _follow(paths: list[str], load: Callable[[list[str]], None]) -> None:
    """Load each file that is there, appears or changes, once it has been still for a look.

    A load that fails is reported, and tried again when its files change; after a transient error it is tried again.
    """
    before: dict[str, _Mark] = {}
    loaded: dict[str, _Mark] = {}
    reported = ""
    print(f"watching {' '.join(paths)} (Ctrl-C stops it)", file=sys.stderr, flush=True)
    try:
        while True:
            marks = _marks(expanded(paths))
            still = [file for file, mark in marks.items() if before.get(file) == mark != loaded.get(file)]
            before = marks
            if still:
                try:
                    load(still)
                except FrazilError as error:
                    if error.message != reported:
                        print_error(error, as_json=False)
                    reported = error.message
                    if error.transient:
                        still = []
                else:
                    reported = ""
                # Their state before the load: files that were written meanwhile are loaded next.
                loaded |= {file: marks[file] for file in still}
                sys.stdout.flush()
            time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        return


def _marks(files: list[str]) -> dict[str, _Mark]:
    marks = {}
    for file in files:
        try:
            status = Path(file).stat()
        except OSError:
            continue  # gone since it was listed, or not there yet
        marks[file] = (status.st_size, status.st_mtime_ns)
    return marks


def _columns(columns: list[str], checks: list[str]) -> dict[str, Any]:
    declared: dict[str, Any] = {}
    for text in columns:
        name, equals, kind = text.partition("=")
        if not equals or not kind:
            raise InvalidInput(f"{text!r} is not a column", code="bad_column", hint="--column amount=decimal(12,2)")
        declared[name.strip()] = {"type": kind.strip()}
    for text in checks:
        name, _, body = text.partition("=")
        try:
            wanted = json.loads(body)
        except ValueError as error:
            raise InvalidInput(
                f"{text!r} is not a check", code="bad_check", hint='--check \'amount={"range": {"min": 0}}\''
            ) from error
        if name.strip() not in declared:
            raise InvalidInput(
                f"the check of {name.strip()!r} needs the type of the column",
                code="bad_check",
                hint=f"--column {name.strip()}=…",
            )
        declared[name.strip()]["checks"] = {**declared[name.strip()].get("checks", {}), **wanted}
    return declared


def _is_local(url: str) -> bool:
    return url.partition("://")[2].rpartition(":")[0] in ("127.0.0.1", "localhost", "[::1]")
