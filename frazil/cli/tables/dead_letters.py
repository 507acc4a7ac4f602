"""`frazil tables dead-letters|resend|discard`: events that could not be committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.listing import listing
from frazil.cli.output import Output
from frazil.cli.verb import verb

if TYPE_CHECKING:
    from frazil.client import Client

Name = Annotated[str, typer.Argument(metavar="TABLE")]


@verb
def dead_letters(
    client: Client,
    output: Output,
    name: Name,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 20,
) -> None:
    """Events of a table that could not be committed, and why."""
    output.show(client.dead_letters(name, limit=limit), _print_letters)


def _print_letters(answer: dict[str, Any]) -> None:
    found = answer.get("dead_letters") or []
    lines = [
        [
            str(letter.get("position")),
            str(letter.get("id")),
            str(letter.get("failed_at") or "")[:19],
            str(letter.get("code")),
            str(letter.get("reason"))[:200],
        ]
        for letter in found
    ]
    listing((">position", "id", "failed at", "code", "reason"), lines, none="none: every event was committed")
    if len(found) < int(answer.get("total") or 0):
        print(f"{answer['total']:,} in all; --limit shows more, --json the events themselves")


@verb
def resend(
    client: Client,
    output: Output,
    name: Name,
    position: Annotated[list[int] | None, typer.Option(help="Only the one at this position; may be repeated.")] = None,
) -> None:
    """Publish dead letters again, under their ids. Events that fail again become dead letters again."""
    output.show(client.resend_dead_letters(name, position or None), _print_resent)


def _print_resent(answer: dict[str, Any]) -> None:
    print(f"{answer.get('resent', 0):,} events are sent again, {answer.get('left', 0):,} dead letters are left")
    lines = [
        [str(one.get("position")), str(one.get("id")), str((one.get("error") or {}).get("message"))[:200]]
        for one in answer.get("refused") or ()
    ]
    listing((">position", "id", "refused because"), lines)


@verb
def discard(
    client: Client,
    output: Output,
    name: Name,
    position: Annotated[list[int], typer.Option(help="Which one; may be repeated.")],
) -> None:
    """Discard dead letters permanently."""
    answer = client.discard_dead_letters(name, position)
    text = f"{answer.get('discarded', 0):,} dead letters are discarded, {answer.get('left', 0):,} are left"
    output.line(answer, text)
