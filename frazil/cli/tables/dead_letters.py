"""`frazil tables dead-letters|resend|discard`: events that could not be committed."""

from __future__ import annotations

from typing import Annotated

import typer

from frazil.cli.output import AsJson, Config, Data, Url, connected, print_json
from frazil.cli.tables.history import listing

Name = Annotated[str, typer.Argument(metavar="TABLE")]


def dead_letters(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 20,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Events of a table that could not be committed, and why."""
    with connected(data, config, url) as client:
        answer = client.dead_letters(name, limit=limit)
    if as_json:
        print_json(answer)
        return
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
    listing((">position", "id", "failed at", "code", "reason"), lines, "none: every event was committed")
    if len(found) < int(answer.get("total") or 0):
        print(f"{answer['total']:,} in all; --limit shows more, --json the events themselves")


def resend(
    name: Name,
    position: Annotated[list[int] | None, typer.Option(help="Only the one at this position; may be repeated.")] = None,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Publish dead letters again after repair, under their ids. What fails again comes back."""
    with connected(data, config, url) as client:
        answer = client.resend_dead_letters(name, position or None)
    if as_json:
        print_json(answer)
        return
    print(f"{answer.get('resent', 0):,} events are sent again, {answer.get('left', 0):,} dead letters are left")
    lines = [
        [str(one.get("position")), str(one.get("id")), str((one.get("error") or {}).get("message"))[:200]]
        for one in answer.get("refused") or ()
    ]
    if lines:
        listing((">position", "id", "refused because"), lines, "")


def discard(
    name: Name,
    position: Annotated[list[int], typer.Option(help="Which one; may be repeated.")],
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Take dead letters out for good, without sending them."""
    with connected(data, config, url) as client:
        answer = client.discard_dead_letters(name, position)
    if as_json:
        print_json(answer)
    else:
        print(f"{answer.get('discarded', 0):,} dead letters are discarded, {answer.get('left', 0):,} are left")
