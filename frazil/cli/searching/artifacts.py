"""`frazil artifacts`: artifacts listed, verified, swapped and rolled back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.listing import listing
from frazil.cli.output import Output, age, counted, print_facts
from frazil.cli.verb import verb

if TYPE_CHECKING:
    from frazil.client import Client

app = typer.Typer(help="List, verify, swap and roll back artifacts.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TABLE")]
Generation = Annotated[str, typer.Argument(metavar="GENERATION", help="As `frazil artifacts list` shows it.")]
OrCurrent = Annotated[
    str, typer.Argument(metavar="[GENERATION]", help="As `frazil artifacts list` shows it, or `previous`.")
]
OfProfile = Annotated[str | None, typer.Option("--profile", metavar="NAME", help="The artifacts of this profile.")]
Patience = Annotated[float, typer.Option("--timeout", min=0, max=300, help="Seconds to wait for all gateways.")]


@app.command("list")
@verb
def list_(
    client: Client,
    output: Output,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]")] = None,
    profile: OfProfile = None,
) -> None:
    """List the artifacts of a table, or of all tables: the newest first, with the gateways that serve them."""
    found = [client.artifacts(name, profile=profile) for name in ([table] if table else _searched(client))]
    build = f"frazil build {table}" + (f" --profile {profile}" if profile else "")
    none = f"{table} has no artifacts yet: {build}" if table else "no artifacts yet"
    output.show(found[0] if table else {"tables": found}, lambda _: _print_artifacts(found, none))


@app.command()
@verb
def show(
    client: Client,
    output: Output,
    table: Name,
    generation: OrCurrent = "current",
    profile: OfProfile = None,
) -> None:
    """Show one artifact: its snapshot, contents and build."""
    output.show(client.artifact(table, generation, profile=profile), _print_artifact)


@app.command()
@verb
def verify(
    client: Client,
    output: Output,
    table: Name,
    generation: OrCurrent = "current",
    profile: OfProfile = None,
) -> None:
    """Download an artifact and check every byte. Exit code 1 if a check fails."""
    report = client.verify_artifact(table, generation, profile=profile)
    output.show(report, _print_verification)
    raise typer.Exit(0 if report["ok"] else 1)


@app.command()
@verb
def swap(
    client: Client,
    output: Output,
    table: Name,
    generation: Generation,
    back: Annotated[bool, typer.Option("--back", help="Allow an artifact that is older or was rolled back.")] = False,
    profile: OfProfile = None,
    timeout: Patience = 30.0,
) -> None:
    """Make all gateways serve this artifact; running searches finish on the previous one."""
    _show_swap(output, client.swap_artifact(table, generation, back=back, profile=profile, wait_s=timeout))


@app.command()
@verb
def rollback(
    client: Client,
    output: Output,
    table: Name,
    reason: Annotated[str, typer.Option(help="The reason; stored with the withdrawn artifact.")] = "",
    profile: OfProfile = None,
    timeout: Patience = 30.0,
) -> None:
    """Return all gateways to the previous artifact; the current one is withdrawn."""
    _show_swap(output, client.rollback_artifact(table, reason=reason, profile=profile, wait_s=timeout))


def _searched(client: Client) -> list[str]:
    return [str(table["name"]) for table in client.tables() if table.get("text") or table.get("search")]


def _print_artifacts(tables: list[dict[str, Any]], none: str) -> None:
    numbers = (">snapshot", ">watermark", ">rows", ">vectors", ">size", ">age")
    rows = [_row(one, artifact) for one in tables for artifact in one["artifacts"]]
    listing(("table", "generation", "state", *numbers, "model", "served by"), rows, none=none, unbroken=3)


def _print_artifact(artifact: dict[str, Any]) -> None:
    manifest = artifact["manifest"]
    words = {
        "state": artifact["state"] + (f", rolled back: {artifact['withdrawn']}" if artifact["withdrawn"] else ""),
        "built at": manifest["built_at"][:19],
        "snapshot": artifact["snapshot_id"],
        "watermark": artifact["watermark"],
        "model": _model(artifact),
        "holds": f"{counted(artifact['rows'], 'row')}, {counted(artifact['chunks'], 'chunk')}, "
        f"{counted(artifact['vectors'], 'vector')}",
        "quarantined": artifact["quarantined"] or None,
        "index": ", ".join(f"{name} {value}" for name, value in manifest["index"].items()) or None,
        "engines": ", ".join(f"{name} {version}" for name, version in manifest["engines"].items()),
        "built in": ", ".join(f"{step} {seconds:g} s" for step, seconds in manifest["seconds"].items()),
        "canaries": len(manifest["canaries"]),
        "served by": ", ".join(artifact["served_by"]) or "nobody",
        "promoted": (artifact["promoted_at"] or "never")[:19],
    }
    print(f"{artifact['table']} {artifact['generation']}")
    print_facts(words, width=12)
    for file in manifest["files"]:
        print(f"  {'file':<12} {file['path']}  {_size(file['size'])}  {file['sha256'][:16]}")


def _print_verification(report: dict[str, Any]) -> None:
    name = f"{report['table']} {report['generation']}"
    if report["ok"]:
        print(f"{name}: {_size(report['bytes'])} are intact ({report['seconds']:.1f} s)")
        return
    print(f"{name} has faults:")
    for fault in report["faults"]:
        print(f"  {fault['code']:<28} {fault['reason']}")


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


def _model(artifact: dict[str, Any]) -> str:
    model = artifact["model"]
    return f"{model['name']} ({model['dims']})" if model else "words alone"


def _show_swap(output: Output, swap: dict[str, Any]) -> None:
    """The current generation. Exit code 1 if an artifact was refused, 3 if a gateway is still behind."""
    output.show(swap, _print_swap)
    raise typer.Exit(0 if swap["complete"] else 1 if swap["trouble"] else 3)


def _print_swap(swap: dict[str, Any]) -> None:
    where = swap["table"] + (f"@{swap['profile']}" if swap["profile"] else "")
    print(f"{where}: {swap['generation']} is current, {swap['previous'] or 'nothing'} was")
    if swap["complete"]:
        print(f"  served by    {', '.join(swap['served_by']) or 'no gateway yet: none has opened the table'}")
    elif swap["trouble"]:
        print(f"  not served   {swap['trouble']['reason']}")
    for reader in swap["behind"]:
        print(f"  behind       {reader['reader']} serves {reader['serving']}")


def _size(size: int) -> str:
    for unit, divisor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= divisor:
            return f"{size / divisor:.1f} {unit}"
    return f"{size} B"
