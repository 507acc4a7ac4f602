"""Load options: the signs and the encoding that a load request names, checked."""

from __future__ import annotations

from frazil.pipeline.sources.csv.dialect import CsvOptions
from frazil.pipeline.sources.csv.text_encodings import known_encoding
from frazil.requests import LoadRequest


def parse_load(body: object) -> LoadRequest:
    """A load from JSON, or `InvalidInput` that says what would be right."""
    load = LoadRequest.parse(body)
    csv_options(load)
    return load


def csv_options(load: LoadRequest) -> CsvOptions:
    if load.encoding:
        known_encoding(load.encoding)
    return CsvOptions(
        delimiter=_sign(load.delimiter),
        quote=_sign(load.quote),
        escape=_sign(load.escape),
        header=load.header,
        encoding=load.encoding,
        null_words=load.null_words,
    )


def _sign(given: str | None) -> str | None:
    return "\t" if given in ("\\t", "tab") else given
