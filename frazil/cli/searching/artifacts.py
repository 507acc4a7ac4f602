"""`frazil artifacts`: what tables are searched from, and which of it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.output import AsJson, Config, Data, Url, age, connected, console, counted, print_json

if TYPE_CHECKING:
    from frazil.client import Client

app = typer.Typer(help="See what tables are searched from; check, swap and roll back.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TABLE")]
Generation = Annotated[str, typer.Argument(metavar="GENERATION", help="As `frazil artifacts list` shows it.")]
OrCurrent = Annotated[
    str, typer.Argument(metavar="[GENERATION]", help="As `frazil artifacts list` shows it, or `previous`.")
]
OfProfile = Annotated[str | None, typer.Option("--profile", metavar="NAME", help="Those of a profile of the table.")]
Patience = Annotated[float, typer.Option("--timeout", min=0, max=300, help="Seconds to wait for all gateways.")]


@app.command("list")
def list_(
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]")] = None,
    profile: OfProfile = None,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """The artifacts of a table, or of all that are searched: the newest first, with who serves which."""
    with connected(data, config, url) as client:
        found = [client.artifacts(name, profile=profile) for name in ([table] if table else _searched(client))]
    if as_json:
        print_json(found[0] if table else {"tables": found})
        return
    from rich.table import Table

    listing = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for heading in ("table", "generation", "state"):
        listing.add_column(heading, no_wrap=True)
    for heading in ("snapshot", "watermark", "rows", "vectors", "size", "age"):
        listing.add_column(heading, justify="right")
    for heading in ("model", "served by"):
        listing.add_column(heading, overflow="fold")
    for one in found:
        for artifact in one["artifacts"]:
            listing.add_row(*_row(one, artifact))
    out = console()
    if not out.is_terminal:
        out.width = 100_000
    build = f"frazil build {table}" + (f" --profile {profile}" if profile else "")
    none = f"{table} has no artifacts yet: {build}" if table else "no artifacts yet"
    out.print(listing if any(one["artifacts"] for one in found) else none)


@app.command()
def show(
    table: Name,
    generation: OrCurrent = "current",
    profile: OfProfile = None,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """One artifact: where it comes from, what is in it, and how it was built."""
    with connected(data, config, url) as client:
        told = client.artifact(table, generation, profile=profile)
    if as_json:
        print_json(told)
        return
    manifest = told["manifest"]
    words = {
        "state": told["state"] + (f", rolled back: {told['withdrawn']}" if told["withdrawn"] else ""),
        "built at": manifest["built_at"][:19],
        "snapshot": told["snapshot_id"],
        "watermark": told["watermark"],
        "model": _model(told),
        "holds": f"{counted(told['rows'], 'row')}, {counted(told['chunks'], 'chunk')}, "
        f"{counted(told['vectors'], 'vector')}",
        "quarantined": told["quarantined"] or None,
        "index": ", ".join(f"{name} {value}" for name, value in manifest["index"].items()) or None,
        "engines": ", ".join(f"{name} {version}" for name, version in manifest["engines"].items()),
        "built in": ", ".join(f"{step} {seconds:g} s" for step, seconds in manifest["seconds"].items()),
        "canaries": len(manifest["canaries"]),
        "served by": ", ".join(told["served_by"]) or "nobody",
        "promoted": (told["promoted_at"] or "never")[:19],
    }
    print(f"{told['table']} {told['generation']}")
    for name, value in words.items():
        if value is not None:
            print(f"  {name:<12} {value}")
    for file in manifest["files"]:
        print(f"  {'file':<12} {file['path']}  {_size(file['size'])}  {file['sha256'][:16]}")


@app.command()
def verify(
    table: Name,
    generation: OrCurrent = "current",
    profile: OfProfile = None,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Fetch an artifact and check all of it without serving it. Exit code 1 if anything is wrong."""
    with connected(data, config, url) as client:
        told = client.verify_artifact(table, generation, profile=profile)
    if as_json:
        print_json(told)
    elif told["ok"]:
        print(
            f"{told['table']} {told['generation']}: {_size(told['bytes'])} are what was built ({told['seconds']:.1f} s)"
        )
    else:
        print(f"{told['table']} {told['generation']} is not fit to serve:")
        for fault in told["faults"]:
            print(f"  {fault['code']:<28} {fault['reason']}")
    raise typer.Exit(0 if told["ok"] else 1)


@app.command()
def swap(
    table: Name,
    generation: Generation,
    back: Annotated[bool, typer.Option("--back", help="Also if it is older, or was rolled back.")] = False,
    profile: OfProfile = None,
    timeout: Patience = 30.0,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Have all gateways serve this artifact; searches that run finish on the one before."""
    with connected(data, config, url) as client:
        told = client.swap_artifact(table, generation, back=back, profile=profile, wait_s=timeout)
    _tell_moved(told, as_json=as_json)


@app.command()
def rollback(
    table: Name,
    reason: Annotated[str, typer.Option(help="Why; kept with the artifact that is left.")] = "",
    profile: OfProfile = None,
    timeout: Patience = 30.0,
    data: Data = None,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Have all gateways go back to the artifact before; the current one does not come back by itself."""
    with connected(data, config, url) as client:
        told = client.rollback_artifact(table, reason=reason, profile=profile, wait_s=timeout)
    _tell_moved(told, as_json=as_json)


def _searched(client: Client) -> list[str]:
    return [str(table["name"]) for table in client.tables() if table.get("text") or table.get("search")]


def _row(one: dict[str, Any], artifact: dict[str, Any]) -> list[str]:
    return [
        one["table"] + (f"@{one['profile']}" if one["profile"] else ""),
        artifact["generation"],
        artifact["state"] + (" (rolled back)" if artifact["withdrawn"] else ""),
        str(artifact["snapshot_id"] or "–"),
        str(artifact["watermark"]),
        f"{artifact['rows']:,}",
        f"{artifact['vectors']:,}",
        _size(artifact["bytes"]),
        age(artifact["age_seconds"]),
        _model(artifact),
        ", ".join(artifact["served_by"]),
    ]


def _model(told: dict[str, Any]) -> str:
    model = told["model"]
    return f"{model['name']} ({model['dims']})" if model else "words alone"


def _tell_moved(told: dict[str, Any], *, as_json: bool) -> None:
    """What serves now. Exit code 1 if an artifact was refused, 3 if somebody has not followed yet."""
    if as_json:
        print_json(told)
    else:
        where = told["table"] + (f"@{told['profile']}" if told["profile"] else "")
        print(f"{where}: {told['generation']} is current, {told['previous'] or 'nothing'} was")
        if told["complete"]:
            print(f"  served by    {', '.join(told['served_by']) or 'nobody yet: no gateway has opened the table'}")
        elif told["trouble"]:
            print(f"  not served   {told['trouble']['reason']}")
        for reader in told["behind"]:
            print(f"  behind       {reader['reader']} serves {reader['serving']}")
    raise typer.Exit(0 if told["complete"] else 1 if told["trouble"] else 3)


def _size(size: int) -> str:
    for unit, divisor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= divisor:
            return f"{size / divisor:.1f} {unit}"
    return f"{size} B"
