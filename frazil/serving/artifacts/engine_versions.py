"""Engine versions: those that wrote an artifact, and those that can read it here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import metadata

# The name in a manifest, and that of the distribution.
_DISTRIBUTIONS = {"faiss": "faiss-cpu", "tantivy": "tantivy", "duckdb": "duckdb", "pyarrow": "pyarrow"}


def running_engines() -> dict[str, str]:
    """The engines that are installed here, without loading any."""
    found = {}
    for name, distribution in _DISTRIBUTIONS.items():
        try:
            found[name] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return found


def unreadable(written: Mapping[str, str], here: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """The engines whose files cannot be trusted to be read here, each with the reason."""
    for name, version in written.items():
        if name not in here:
            yield name, f"it was written with {name} {version}, which is not installed here"
        elif not _RULES.get(name, _same)(version, here[name]):
            yield name, f"it was written with {name} {version}, and here is {here[name]}"


def _same(written: str, here: str) -> bool:
    return written == here


def _same_minor(written: str, here: str) -> bool:
    return _numbers(written)[:2] == _numbers(here)[:2]


def _not_older(written: str, here: str) -> bool:
    return _numbers(written)[:1] == _numbers(here)[:1] and _numbers(written) <= _numbers(here)


def _always(written: str, here: str) -> bool:
    return bool(_numbers(written))


def _numbers(version: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for word in version.split("."):
        if not word.isdecimal():
            break
        numbers.append(int(word))
    return tuple(numbers)


# The files of Arrow are a published format. DuckDB and faiss read what their older releases wrote, not the reverse.
# tantivy makes no such promise between its minor releases.
_RULES: Mapping[str, Callable[[str, str], bool]] = {
    "pyarrow": _always,
    "duckdb": _not_older,
    "faiss": _not_older,
    "tantivy": _same_minor,
}
