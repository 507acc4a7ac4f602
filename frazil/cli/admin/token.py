"""`frazil token`: access tokens created, listed, rotated and revoked."""

from __future__ import annotations

import re
import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.listing import listing
from frazil.cli.options import SharedOptions
from frazil.cli.output import Output
from frazil.cli.verb import verb
from frazil.errors import InvalidInput

if TYPE_CHECKING:
    from frazil.client import Client

app = typer.Typer(help="Create, list, rotate and revoke access tokens.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="The token's id, or its prefix frz_….")]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhdw]?)\Z")


@app.command()
@verb
def create(
    options: SharedOptions,
    output: Output,
    name: Annotated[str, typer.Argument(help="A name for the token: its user and purpose.")],
    grant: Annotated[
        list[str],
        typer.Option(
            metavar="SCOPE",
            help="ingest:TABLE, read:TABLE, sql or admin; TABLE is a name, NAMESPACE.* or *. "
            "Also: 'read:TABLE where=\"CONDITION\" mask=COLUMN,COLUMN:hash'. Repeat it for more.",
        ),
    ],
    where: Annotated[str | None, typer.Option(help="Limit the one granted table to these rows.")] = None,
    mask: Annotated[
        str | None, typer.Option(metavar="COLUMN[:null|hash|hash(DOMAIN)|redact],…", help="Hide columns of that table.")
    ] = None,
    expires: Annotated[str | None, typer.Option(metavar="30d", help="Expire after this time: s, m, h, d or w.")] = None,
    rate: Annotated[float | None, typer.Option(help="Requests a second.", show_default="from the settings")] = None,
    burst: Annotated[int | None, typer.Option(help="Requests at once.", show_default="from the settings")] = None,
) -> None:
    """Create a token. Its secret is printed once, on standard output."""
    grants = _restricted([parse_grant(text) for text in grant], where, mask)
    expires_in_s = seconds_of(expires) if expires else None
    with options.connect() as client:
        made = client.tokens.create(name, grants, expires_in_s=expires_in_s, rate_per_second=rate, burst=burst)
    until = f", until {made['expires_at']}" if made.get("expires_at") else ""
    _hand_out(output, made, f"token {made['id']} may {_scopes(made)}{until}")


@app.command("list")
@verb
def list_(
    client: Client,
    output: Output,
    all_: Annotated[bool, typer.Option("--all", help="Also expired and revoked tokens.")] = False,
) -> None:
    """List active tokens, the newest first, without admin.token."""
    tokens = [token for token in client.tokens.list() if all_ or token["state"] == "active"]
    output.show({"tokens": tokens}, lambda _: _print_tokens(tokens))


@app.command()
@verb
def show(client: Client, output: Output, token_id: Id) -> None:
    """Show one token without its secret."""
    output.show(client.tokens.show(token_id), _print_token)


@app.command()
@verb
def revoke(client: Client, output: Output, token_id: Id) -> None:
    """Revoke a token permanently. Every gateway refuses it within 5 seconds."""
    token = client.tokens.revoke(token_id)
    output.line(token, f"token {token['id']} ({token['name']}) is revoked")


@app.command()
@verb
def rotate(
    options: SharedOptions,
    output: Output,
    token_id: Id,
    grace: Annotated[str, typer.Option(metavar="1h", help="How much longer the old secret works.")] = "0s",
) -> None:
    """Give a token a new secret. It is printed once, on standard output."""
    grace_s = seconds_of(grace)
    with options.connect() as client:
        token = client.tokens.rotate(token_id, grace_s=grace_s)
    until = token.get("old_secret_until")
    state = f"works until {until}" if until else "has ended"
    _hand_out(output, token, f"token {token['id']} has a new secret; the old one {state}")


def parse_grant(text: str) -> dict[str, Any]:
    """A grant from `SCOPE [where="CONDITION"] [mask=COLUMN,…]`."""
    try:
        scope, *words = shlex.split(text)
    except ValueError as error:
        raise _bad_grant(text, hint="read:notes where=\"team = 'north'\" mask=email,phone:hash") from error
    grant: dict[str, Any] = {"scope": scope}
    for word in words:
        name, equals, value = word.partition("=")
        if name not in ("where", "mask") or not equals or name in grant:
            raise _bad_grant(text, hint="read:notes where=\"team = 'north'\" mask=email,phone:hash")
        grant[name] = _masks(value) if name == "mask" else value
    return grant


def seconds_of(text: str) -> float:
    """Seconds from 90, 90s, 15m, 12h, 30d or 2w."""
    match = _DURATION.match(text.strip())
    if match is None:
        raise InvalidInput(f"{text!r} is not a duration", code="bad_duration", hint="write 90s, 15m, 12h, 30d or 2w")
    return float(match[1]) * _UNITS[match[2] or "s"]


def _restricted(grants: list[dict[str, Any]], where: str | None, mask: str | None) -> list[dict[str, Any]]:
    """The grants, with --where and --mask added to the only read grant."""
    if where is None and mask is None:
        return grants
    reading = [grant for grant in grants if grant["scope"].startswith("read:")]
    if len(reading) != 1:
        raise InvalidInput(
            f"--where and --mask need exactly one read grant; there are {len(reading)}",
            code="bad_grant",
            hint="write them into the grant: --grant 'read:notes where=\"…\" mask=email'",
        )
    more = {"where": where, "mask": _masks(mask) if mask is not None else None}
    for word, value in more.items():
        if value is not None and word in reading[0]:
            raise InvalidInput(f"the grant has a `{word}` already", code="bad_grant", hint=f"leave out --{word}")
    reading[0].update({word: value for word, value in more.items() if value is not None})
    return grants


def _masks(text: str) -> dict[str, str]:
    masks: dict[str, str] = {}
    for part in text.split(","):
        column, _, kind = part.strip().partition(":")
        masks[column] = kind or "null"
    return masks


def _bad_grant(text: str, *, hint: str) -> InvalidInput:
    return InvalidInput(f"{text!r} is not a grant", code="bad_grant", hint=hint)


def _hand_out(output: Output, token: dict[str, Any], words: str) -> None:
    """The secret on standard output, for a pipe or a file; what is for people on standard error."""
    print(words, file=sys.stderr)
    print("keep it safe: it is shown only once", file=sys.stderr)
    output.show(token, lambda _: print(token["token"], flush=True))


def _print_tokens(tokens: list[dict[str, Any]]) -> None:
    rows = [
        [
            token["id"],
            token["name"],
            token["state"],
            _scopes(token),
            (token["expires_at"] or "–")[:19],
            (token["last_used_at"] or "–")[:19],
        ]
        for token in tokens
    ]
    listing(("id", "name", "state", "grants", "expires", "last used"), rows, none="no tokens except admin.token")


def _print_token(token: dict[str, Any]) -> None:
    for word, value in token.items():
        if word != "grants" and value is not None:
            print(f"{word:<18}{value}")
    for grant in token["grants"]:
        print(f"{'grant':<18}{_grant_text(grant)}")


def _scopes(token: dict[str, Any]) -> str:
    return ", ".join(grant["scope"] + (" (in part)" if len(grant) > 1 else "") for grant in token["grants"])


def _grant_text(grant: dict[str, Any]) -> str:
    words = [grant["scope"]]
    if "where" in grant:
        words.append(f"where={shlex.quote(grant['where'])}")
    if "mask" in grant:
        words.append("mask=" + ",".join(f"{column}:{kind}" for column, kind in grant["mask"].items()))
    return " ".join(words)
