"""`frazil trial`: indexes and models measured on a table's own vectors, the best of them, and a chart.

`frazil trial notes` is `frazil trial run notes`; a table named like a verb of this file needs the word `run`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from frazil.cli.job import run_job
from frazil.cli.listing import listing
from frazil.cli.options import SharedOptions
from frazil.cli.output import Output, counted
from frazil.cli.verb import verb
from frazil.errors import InvalidInput, Misconfigured

if TYPE_CHECKING:
    from frazil.client import Client

_WAIT_SECONDS = 7200.0


class _RunFirst(TyperGroup):
    """The word `run` may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunFirst, help="Try indexes and models on a table; `frazil trial TABLE` runs.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(metavar="TABLE")]
Profile = Annotated[str | None, typer.Option(metavar="NAME", help="The index of this profile, not of the table.")]
Model = Annotated[str | None, typer.Option(metavar="MODEL", help="Vectors of this model.", show_default="the table's")]


@app.command()
@verb
def run(
    options: SharedOptions,
    output: Output,
    table: Name,
    kinds: Annotated[str | None, typer.Option(metavar="KIND,…", help="Only these: flat, pq, ivf, hnsw, vss.")] = None,
    grid: Annotated[
        str | None, typer.Option(metavar="FILE|JSON", help='As [{"kind": "pq", "sub_dims": [2, 4]}, "flat"].')
    ] = None,
    search: Annotated[
        int | None, typer.Option(metavar="N", help="N trials: at random, then near the best.", show_default=False)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of sample, queries and search.")] = None,
    models: Annotated[
        str | None, typer.Option(metavar="MODEL,…", help="Compare these models instead of indexes.")
    ] = None,
    eval_: Annotated[
        Path | None,
        typer.Option("--eval", metavar="FILE", help="Queries: lines of text, or JSON with text or vector, expected."),
    ] = None,
    queries: Annotated[
        int | None, typer.Option(help="How many queries to make from the data.", show_default="200")
    ] = None,
    k: Annotated[int | None, typer.Option("-k", help="How many neighbours count.", show_default="10")] = None,
    rule: Annotated[str | None, typer.Option(help="What is best.", show_default="fastest with recall >= 0.99")] = None,
    max_vectors: Annotated[
        int | None, typer.Option(help="Use a sample if there are more vectors.", show_default="100,000")
    ] = None,
    limit: Annotated[float | None, typer.Option(help="Seconds for all trials.", show_default="1800")] = None,
    trial_limit: Annotated[float | None, typer.Option(help="Seconds for one.", show_default="300")] = None,
    profile: Profile = None,
    model: Model = None,
) -> None:
    """Build and measure indexes on the vectors of a table."""
    body = {
        "kinds": _words(kinds),
        "grid": None if grid is None else _grid(grid),
        "search": search,
        "seed": seed,
        "models": _words(models),
        "eval_set": None if eval_ is None else _eval_set(eval_),
        "queries": queries,
        "k": k,
        "rule": rule,
        "max_vectors": max_vectors,
        "limit_seconds": limit,
        "trial_seconds": trial_limit,
        "profile": profile,
        "model": model,
    }
    with options.connect() as client:
        run_job(client, output, "trial", body, _print_report, table=table, timeout=_WAIT_SECONDS)


def _print_report(report: dict[str, Any]) -> None:
    (_print_models if "models" in report else _print_run)(report)


@app.command("list")
@verb
def list_(
    client: Client,
    output: Output,
    table: Name,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Only of this run.")] = None,
    limit: Annotated[int, typer.Option(help="How many, the newest.")] = 50,
) -> None:
    """List measurements, newest first. They are the table `<TABLE>__trials`."""
    found = client.trials(table, run=run, limit=limit)
    none = f"no trials yet: frazil trial {table}"
    output.show({"trials": found}, lambda _: _print_trials(found) if found else print(none))


@app.command()
@verb
def best(
    options: SharedOptions,
    output: Output,
    table: Name,
    rule: Annotated[str | None, typer.Option(metavar="SENTENCE", help='"fastest with recall >= 0.99".')] = None,
    recall: Annotated[float | None, typer.Option(help="The least recall.", show_default="0.99")] = None,
    by: Annotated[
        str | None, typer.Option(help="Minimise latency, build, memory or size.", show_default="latency")
    ] = None,
    k: Annotated[int | None, typer.Option("-k", help="Trials of this k.", show_default="the newest")] = None,
    promote: Annotated[bool, typer.Option("--promote", help="Use it in the next build.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Return to the default index.")] = False,
    profile: Profile = None,
    model: Model = None,
) -> None:
    """Show the best trial of the current data under a rule."""
    if forget and (promote or rule or recall is not None or by):
        raise InvalidInput(
            "--forget excludes other options", code="bad_trial", hint=f"frazil trial best {table} --forget"
        )
    with options.connect() as client:
        if forget:
            output.show(client.forget_best(table, profile=profile, model=model), _print_forgotten)
            return
        words: dict[str, Any] = {"rule": rule, "recall": recall, "by": by, "k": k}
        best = client.best_trial(table, promote=promote, profile=profile, model=model, **words)
    following = "the next build uses it" if promote else f"frazil trial best {table} --promote"
    output.show(best, lambda _: _print_best(best, following))


@app.command()
@verb
def chart(
    options: SharedOptions,
    output: Output,
    table: Name,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Ends in .svg or .html.")],
    run: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Of this run.", show_default="all on the data and machine of the newest"),
    ] = None,
) -> None:
    """Draw recall against latency."""
    from frazil.serving.trials import chart as drawing

    draw = {".svg": drawing.svg, ".html": drawing.page}.get(out.suffix.lower())
    if draw is None:
        raise InvalidInput(f"{out.name!r} does not end in .svg or .html", code="bad_chart", hint="--out trials.html")
    with options.connect() as client:
        found = client.trials(table, run=run)
    shown = drawing.alike(found)
    if not shown:
        raise InvalidInput(f"{table!r} has no trial to draw", code="no_trials", hint=f"frazil trial {table}")
    try:
        out.write_text(draw(shown, _title(table, shown[-1])), encoding="utf-8")
    except OSError as error:
        raise Misconfigured(f"{out} cannot be written: {error.strerror}", hint="choose another path") from error
    output.line({"file": str(out), "trials": len(shown)}, f"{out}: {counted(len(shown), 'trial')}")


def _title(table: str, trial: Mapping[str, Any]) -> str:
    return f"{table}: recall@{trial['k']} against latency, {trial['vectors']:,} vectors of {trial.get('model', '?')}"


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _grid(given: str) -> Any:
    text = given if given.lstrip().startswith(("[", "{")) else _read(Path(given))
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(
            f"the grid is not JSON: {error}", code="bad_trial", hint='[{"kind": "pq"}, "flat"]'
        ) from error


def _eval_set(path: Path) -> list[Any]:
    """Lines of text; lines of JSON; or one JSON list."""
    text = _read(path)
    try:
        if text.lstrip().startswith("["):
            return list(json.loads(text))
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return [json.loads(line) if line.startswith("{") else line for line in lines]
    except ValueError as error:
        raise InvalidInput(
            f"{path} is not JSON: {error}", code="bad_trial", hint='{"text": "…"} in each line'
        ) from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}", code="bad_trial", hint="name a text file") from error


def _short(config: dict[str, Any]) -> str:
    from frazil.serving.trials import short

    return short(config)


def _print_forgotten(answer: dict[str, Any]) -> None:
    was = "nothing was chosen" if answer["forgotten"] is None else f"{_short(answer['forgotten'])} is forgotten"
    print(f"{answer['shelf']}: {was}; the default index is used")


def _print_best(best: dict[str, Any], following: str) -> None:
    print(f"{best['shelf']}: {_short(best['config'])}")
    print(f"  because   {best['because']}")
    print(f"  of        {counted(best['considered'], 'trial')} of today's data")
    print(f"  next      {following}")


def _print_run(report: dict[str, Any]) -> None:
    sample = f", a sample of {report['of_vectors']:,}" if report["vectors"] < report["of_vectors"] else ""
    where = f"generation {report['generation']}" if report.get("generation") else "its rows"
    print(
        f"{report['table']}: {counted(len(report['trials']), 'trial')} in {report['seconds']:.0f} s on "
        f"{report['vectors']:,} vectors of {report['dims']} numbers{sample}, from {where}"
    )
    queries = counted(report["queries"], "query").replace("querys", "queries")
    print(f"  {queries} ({report['asked']}), k = {report['k']}")
    _print_trials(report["trials"], best=report["best"])
    for trial in report["trials"]:
        if trial["state"] != "ok":
            print(f"  {_short(trial['config'])}: {trial['state']}, {trial.get('reason', '')}")
    if report["left"]:
        print(f"  {counted(report['left'], 'trial')} left out: the time limit was reached (--limit)")
    verdict = "▸ is the best" if report["best"] else "nothing is good enough"
    print(f"  {verdict}: {report['rule']}")
    table = report["table"]
    print(f'  look at all    frazil sql "SELECT kind, config, recall, p50_ms FROM {table}__trials"')  # noqa: S608 - shown
    print(f"  take the best  frazil trial best {table} --promote")


def _print_trials(trials: list[dict[str, Any]], *, best: str | None = None) -> None:
    measured = [trial for trial in trials if trial["state"] == "ok" and trial.get("purpose") != "model"]
    rows = [
        [
            "▸" if trial["trial"] == best else "",
            _short(trial["config"]) + ("  (default)" if trial.get("is_default") else ""),
            f"{trial['recall']:.4f}",
            f"{trial['p50_ms']:.3f}",
            f"{trial['p99_ms']:.3f}",
            f"{trial['build_seconds']:.2f}",
            f"{trial['size_bytes'] / (1 << 20):,.1f}",
            f"{trial['memory_bytes'] / (1 << 20):,.1f}",
        ]
        for trial in measured
    ]
    listing(("", "index", ">recall", ">p50 ms", ">p99 ms", ">build s", ">disk MB", ">memory MB"), rows)


def _print_models(report: dict[str, Any]) -> None:
    print(
        f"{report['table']}: {report['queries']:,} queries ({report['asked']}) over "
        f"{counted(report['documents'], 'document')}, k = {report['k']}"
    )
    rows = [_model_row(model) for model in report["models"]]
    listing(("model", ">found", ">MRR", ">vectors", ">numbers", ">ms a query", ""), rows)


def _model_row(model: dict[str, Any]) -> list[str]:
    figures = [f"{model[name]:.4f}" if name in model else "–" for name in ("hit_rate", "mrr")]
    took = f"{model['p50_ms']:.2f}" if "p50_ms" in model else "–"
    words = "" if model["state"] == "ok" and "reason" not in model else f"{model['state']}: {model.get('reason')}"
    return [model["model"], *figures, f"{model['vectors']:,}", str(model["dims"]), took, words]
