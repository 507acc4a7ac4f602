"""`frazil sql`: one SELECT, or a prompt."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from frazil.cli.ask.answer_table import print_answer
from frazil.cli.options import SharedOptions
from frazil.cli.terminal_cells import printable, tame
from frazil.cli.verb import verb
from frazil.errors import FrazilError, InvalidInput
from frazil.requests import (
    DEFAULT_FRESHNESS,
    DEFAULT_MAX_ROWS,
    DEFAULT_TIMEOUT_S,
    MAX_ROWS,
    MAX_TIMEOUT_S,
    MIN_TIMEOUT_S,
    Freshness,
    WhenBehind,
)
from frazil.requests import Format as WireFormat

if TYPE_CHECKING:
    from frazil.client import Client, EncodedAnswer

RETRY_S = 10.0
"""Default `when_behind` at a terminal."""
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SUFFIXES = {
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".csv": "csv",
    ".arrow": "arrow",
    ".arrows": "arrow",
}
Format = Literal["table", WireFormat]


@verb
def sql(
    options: SharedOptions,
    text: Annotated[
        str | None, typer.Argument(metavar="[SELECT|-]", help="The query; - is standard input; without: a prompt.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="Read the query from a file.")] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            metavar="[NAME=]VALUE",
            help="The next ? or the $NAME of the query. 5, 1.5, true, null and [1, 2] are read as JSON, "
            "everything else as text.",
        ),
    ] = None,
    format: Annotated[
        Format | None, typer.Option("--format", help="How to write the rows.", show_default="table")
    ] = None,
    destination: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to a file; its name selects the format."),
    ] = None,
    freshness: Annotated[
        Freshness, typer.Option(help="live: everything received; committed: the newest snapshot.")
    ] = DEFAULT_FRESHNESS,
    min_token: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Include, or wait for, the writes of this token.")
    ] = None,
    as_of: Annotated[
        list[str] | None,
        typer.Option("--as-of", metavar="[TABLE=]TIME", help="As it was then; ISO 8601 with a zone."),
    ] = None,
    snapshot: Annotated[list[str] | None, typer.Option(metavar="TABLE=ID", help="As it was at this snapshot.")] = None,
    max_rows: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_ROWS, help="At most this many rows.", show_default=str(DEFAULT_MAX_ROWS)),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=MIN_TIMEOUT_S,
            max=MAX_TIMEOUT_S,
            help="Time limit of the query in seconds.",
            show_default=f"{DEFAULT_TIMEOUT_S:g}",
        ),
    ] = None,
    when_behind: Annotated[
        WhenBehind | None,
        typer.Option(help="What to do if there are too many uncommitted events.", show_default="error"),
    ] = None,
) -> None:
    """Run SQL. Without a query: a prompt with history and completion."""
    words: dict[str, Any] = {
        "freshness": freshness,
        "min_token": min_token,
        "as_of": _as_of(as_of),
        "snapshot": _snapshots(snapshot),
        "max_rows": max_rows,
        "timeout_s": timeout,
        "when_behind": when_behind,
    }
    wanted = _format(format, destination, as_json=options.as_json)
    if text is None and file is None and sys.stdin.isatty():
        if destination is not None or param:
            raise InvalidInput("there is no query", code="no_query", hint='frazil sql "SELECT …" --output FILE')
        from frazil.cli.ask.sql_prompt import prompt

        with options.connect(retry_s=RETRY_S) as client:
            prompt(client, words, wanted, options.state_folder() / "sql_history")
        return
    query = _query(text, file)
    parameters = _parameters(param or ())
    with options.connect(retry_s=RETRY_S) as client:
        try:
            written = run_query(client, query, parameters, wanted, words)
        except KeyboardInterrupt:
            print("cancelled", file=sys.stderr)
            raise typer.Exit(130) from None
        except FrazilError as error:
            tame(error)
            raise
    if destination is not None:
        _store(written, destination)
    else:
        print_written(written, wanted)
    warn_if_truncated(written, "add --max-rows, up to 1000000, or a LIMIT")


def run_query(client: Client, query: str, parameters: Any, format: str, words: dict[str, Any]) -> EncodedAnswer:
    """The answer, in the format that is to be shown or stored."""
    wire: Any = "json" if format == "table" else format
    return client.sql_written(query, parameters, format=wire, **words)


def print_written(written: EncodedAnswer, format: str) -> None:
    """Print the answer. A program gets the bytes as they are; on a terminal nothing in them may steer it."""
    if format == "table":
        print_answer(written.facts)
    elif not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(written.content.rstrip(b"\n") + b"\n" if format == "json" else written.content)
        sys.stdout.buffer.flush()
    elif format == "arrow":
        raise InvalidInput(
            "an Arrow stream cannot be shown on a terminal", code="not_for_a_terminal", hint="add --output FILE.arrow"
        )
    else:
        print(printable(written.content.decode(errors="replace").replace("\r\n", "\n"), keep="\n\t").rstrip("\n"))


def warn_if_truncated(written: EncodedAnswer, hint: str) -> None:
    if written.facts.get("truncated"):
        print(f"There are more rows than these {written.facts.get('row_count', 0):,}.", file=sys.stderr)
        print(f"Try:   {hint}", file=sys.stderr)


def _store(written: EncodedAnswer, output: Path) -> None:
    try:
        output.write_bytes(written.content)
    except OSError as error:
        raise InvalidInput(f"{output} cannot be written: {error.strerror}", code="bad_file") from error
    print(f"{written.facts.get('row_count', 0):,} rows in {output}", file=sys.stderr)


def _query(text: str | None, file: Path | None) -> str:
    if text is not None and file is not None:
        raise InvalidInput("there are two queries", code="two_queries", hint="use the query or --file")
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{file} cannot be read: {error}", code="bad_file") from error
    elif text is None or text == "-":
        text = sys.stdin.read()
    if not text.strip():
        raise InvalidInput("there is no query", code="no_query", hint='frazil sql "SELECT …"')
    return text


def _format(format: Format | None, output: Path | None, *, as_json: bool) -> str:
    if as_json and format not in (None, "json"):
        raise InvalidInput(
            f"--json and --format {format} exclude each other", code="two_formats", hint="use one of them"
        )
    if as_json:
        return "json"
    if output is None:
        return format or "table"
    found = format or _SUFFIXES.get(output.suffix.lower())
    if found in (None, "table"):
        raise InvalidInput(
            f"{output} needs a file format",
            code="no_format",
            hint="add --format json|ndjson|csv|arrow",
        )
    return str(found)


def _parameters(given: Sequence[str]) -> list[Any] | dict[str, Any] | None:
    named = [found for text in given if (found := _NAMED.fullmatch(text))]
    if named and len(named) < len(given):
        raise InvalidInput(
            "some parameters have a name and some do not",
            code="bad_parameters",
            hint="name all or none; quote text that contains =: --param '\"a=b\"'",
        )
    if named:
        return {found[1]: _value(found[2]) for found in named}
    return [_value(text) for text in given] or None


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text


def _as_of(given: list[str] | None) -> str | dict[str, str] | None:
    if not given:
        return None
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    return _by_table(given, "--as-of", "TIME")


def _snapshots(given: list[str] | None) -> dict[str, int] | None:
    if not given:
        return None
    found = _by_table(given, "--snapshot", "ID")
    if wrong := [id for id in found.values() if not id.isascii() or not id.isdigit()]:
        raise InvalidInput(
            f"{wrong[0]!r} is not a snapshot", code="bad_snapshot", hint="frazil tables history TABLE lists their ids"
        )
    return {table: int(id) for table, id in found.items()}


def _by_table(given: list[str], option: str, what: str) -> dict[str, str]:
    found = dict(text.partition("=")[::2] for text in given)
    if len(found) < len(given) or not all(table and value for table, value in found.items()):
        raise InvalidInput(
            f"{option} {' '.join(given)} is not clear", code="bad_option", hint=f"write {option} TABLE={what} for each"
        )
    return found
