"""`frazil search`: find rows by words, by a vector, or by both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.options import SharedOptions
from frazil.cli.output import Output, console, counted
from frazil.cli.terminal_cells import printable, tame
from frazil.cli.verb import verb
from frazil.errors import FrazilError, InvalidInput
from frazil.requests import (
    DEFAULT_FRESHNESS,
    DEFAULT_K,
    DEFAULT_TIMEOUT_S,
    MAX_K,
    MAX_OFFSET,
    MAX_TIMEOUT_S,
    MIN_TIMEOUT_S,
    Freshness,
    Mode,
    WhenBehind,
)

if TYPE_CHECKING:
    from rich.text import Text

    from frazil.client import SearchAnswer, SearchHit

RETRY_S = 10.0
"""Default `when_behind` at a terminal."""
_MOST_CHARACTERS = 160


@verb
def search(
    options: SharedOptions,
    output: Output,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="The table; none with --profile.")] = None,
    query: Annotated[str | None, typer.Argument(metavar="[WORDS]", help="What to look for.")] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="By meaning, by words, or both.", show_default="what the table has")
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", "-k", min=1, max=MAX_K, help="How many.", show_default=str(DEFAULT_K))
    ] = None,
    offset: Annotated[int | None, typer.Option(min=0, max=MAX_OFFSET, help="Skip this many hits.")] = None,
    min_score: Annotated[float | None, typer.Option(help="Leave out hits with a lower score.")] = None,
    filter: Annotated[
        str | None, typer.Option("--filter", metavar="SQL", help="A condition over the columns: year > 2020")
    ] = None,
    fields: Annotated[
        str | None, typer.Option("--fields", metavar="COLUMN,…", help="Look for words in these columns only.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="COLUMN,…", help="Show these columns of the rows.")
    ] = None,
    profile: Annotated[str | None, typer.Option(metavar="NAME", help="Search with this profile.")] = None,
    vector: Annotated[
        Path | None,
        typer.Option("--vector", metavar="FILE", help="A file with the query vector: a JSON list of numbers."),
    ] = None,
    freshness: Annotated[
        Freshness, typer.Option(help="live: everything received; committed: the newest snapshot.")
    ] = DEFAULT_FRESHNESS,
    min_token: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Include, or wait for, the writes of this token.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=MIN_TIMEOUT_S,
            max=MAX_TIMEOUT_S,
            help="Time limit in seconds.",
            show_default=f"{DEFAULT_TIMEOUT_S:g}",
        ),
    ] = None,
    when_behind: Annotated[
        WhenBehind | None,
        typer.Option(help="What to do if there are too many new rows to search.", show_default="error"),
    ] = None,
) -> None:
    """Search a table: `frazil search notes "green tea"`."""
    if profile is not None and query is None and table is not None:
        table, query = None, table
    with options.connect(retry_s=RETRY_S) as client:
        try:
            answer = client.search(
                table,
                query,
                profile=profile,
                vector=None if vector is None else _numbers(vector),
                mode=mode,
                k=k,
                offset=offset,
                min_score=min_score,
                filter=filter,
                fields=_listed(fields),
                columns=_listed(columns),
                freshness=freshness,
                min_token=min_token,
                timeout_s=timeout,
                when_behind=when_behind,
            )
        except FrazilError as error:
            tame(error)
            raise
    output.show(answer.facts, lambda _: _print_answer(answer, wanted=_listed(columns)))


def _numbers(file: Path) -> list[float]:
    try:
        numbers = json.loads(file.read_bytes())
        return [float(number) for number in numbers]
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read", code="no_file", hint=str(error.strerror or "")) from error
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{file} is not a list of numbers", code="bad_vector", hint="[0.1, -0.2, …]") from error


def _listed(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def _print_answer(answer: SearchAnswer, *, wanted: list[str] | None) -> None:
    out = console()
    for place, hit in enumerate(answer, start=1):
        out.print(_headline(place, hit))
        for line in _lines(hit, wanted):
            out.print(line)
    for reason in answer.ignored:
        out.print(f"ignored: {printable(reason)}", style="yellow", markup=False)
    generation = f"generation {answer.generation}" if answer.generation else "no artifact yet"
    out.print(
        f"{counted(len(answer), 'hit')} ({answer.mode}) · {generation} · "
        f"{counted(answer.fresh_rows, 'fresh row')} searched · {answer.elapsed_ms:.1f} ms\ntoken {answer.token}",
        style="dim",
        markup=False,
        soft_wrap=True,
    )


def _headline(place: int, hit: SearchHit) -> Text:
    from rich.text import Text

    named = hit.id if isinstance(hit.id, str) else json.dumps(hit.id, ensure_ascii=False)
    line = Text(f"{place}. ", style="dim")
    line.append(printable(named), style="bold")
    line.append(f"  {hit.score:.4f}", style="cyan")
    if hit.fresh:
        line.append("  fresh", style="green")
    return line


def _lines(hit: SearchHit, wanted: list[str] | None) -> list[Text]:
    from rich.text import Text

    lines = []
    if hit.snippet is not None and hit.snippet.text.strip():
        # Marks are spelled around before anything is made harmless: lengths change by that.
        text, at = Text("   "), 0
        for begin, end in hit.snippet.marks:
            text.append(_plain(hit.snippet.text[at:begin]))
            text.append(_plain(hit.snippet.text[begin:end]), style="bold yellow")
            at = end
        text.append(_plain(hit.snippet.text[at:]))
        lines.append(text)
    shown = wanted if wanted is not None else [name for name in hit.row if not name.startswith("_")]
    text_of = {hit.snippet.column} if hit.snippet is not None and wanted is None else set()
    values = [f"{name} {_value(hit.row[name])}" for name in shown if name not in text_of and hit.row[name] is not None]
    if values:
        lines.append(Text("   " + " · ".join(values), style="dim"))
    return lines


def _plain(text: str) -> str:
    return printable(text.replace("\n", " ").replace("\t", " "))


def _value(value: Any) -> str:
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _plain(written if len(written) <= _MOST_CHARACTERS else written[:_MOST_CHARACTERS] + "…")
