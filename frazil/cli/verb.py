"""Verb decorator: adds the shared options to a verb, and passes the client and the output.

The names of its first parameters select what a verb gets:

- `client`: a connected client, closed when the verb returns;
- `output`: prints the answer, as text or as JSON;
- `options`: the shared options themselves, for verbs that check their input before they connect.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

from frazil.cli.options import AsJson, Config, Data, SharedOptions, Url
from frazil.cli.output import Output

Verb = Callable[..., None]
_PROVIDED = ("client", "output", "options")
_LOCAL = {"data": (Data, None), "config": (Config, None), "as_json": (AsJson, False)}
_REMOTE = {"data": (Data, None), "config": (Config, None), "url": (Url, None), "as_json": (AsJson, False)}


def verb(function: Verb) -> Verb:
    """A verb about a running frazil: `--data`, `--config`, `--url` and `--json` follow its own options."""
    return _with_options(function, _REMOTE)


def local_verb(function: Verb) -> Verb:
    """A verb about this machine: `--data`, `--config` and `--json` follow its own options."""
    return _with_options(function, _LOCAL)


def _with_options(function: Verb, shared: dict[str, tuple[Any, Any]]) -> Verb:
    # Modules of verbs import Client for type checkers only: it brings httpx along.
    declared = inspect.signature(function, eval_str=True, locals={"Client": Any}).parameters
    wanted = [name for name in _PROVIDED if name in declared]

    @wraps(function)
    def called(**given: Any) -> None:
        options = SharedOptions(**{name: given.pop(name) for name in shared})
        with ExitStack() as stack:
            provided: dict[str, Any] = {"options": options, "output": Output(as_json=options.as_json)}
            if "client" in wanted:
                provided["client"] = stack.enter_context(options.connect())
            function(**{name: provided[name] for name in wanted}, **given)

    own = [parameter for name, parameter in declared.items() if name not in _PROVIDED]
    added = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation, default=default)
        for name, (annotation, default) in shared.items()
    ]
    signature = inspect.Signature([*own, *added])
    called.__signature__ = signature  # type: ignore[attr-defined]
    called.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return called
