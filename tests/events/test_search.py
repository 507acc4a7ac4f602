"""How a table declares that it is searched."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import InvalidInput
from frazil.events.declaration import Chunking, SearchSpec, check_declarable, parse_table
from frazil.events.declaration.search_spec import parse_search
from frazil.requests import CreateTableRequest, decode_request

COLUMNS = {"title": "string", "body": "string", "n": "long", "doc": "json", "v": "list<float>", "w": "list<double>",
           "ints": "list<int>", "deep": "list<list<float>>"}  # fmt: skip


def declared(**words: Any) -> dict[str, Any]:
    return {"name": "notes", "columns": COLUMNS} | words


def test_nothing_declared_is_not_searched() -> None:
    spec = parse_table(declared())
    check_declarable(spec)
    assert spec.search is None and spec.searched is None and spec.declared()["search"] is None


def test_text_alone_is_searched_by_default() -> None:
    spec = parse_table(declared(text=["title", "body"]))
    check_declarable(spec)
    assert spec.search is None
    assert spec.searched == SearchSpec("wordllama", Chunking(800, 100, "sentence"), None)


def test_a_declaration_is_read_and_written_back() -> None:
    search = {"model": "mini-lm", "chunk": {"size": 400, "overlap": 0, "by": "heading"}, "vector": "v"}
    spec = parse_table(declared(text=["body"], search=search))
    check_declarable(spec)
    assert spec.search == SearchSpec("mini-lm", Chunking(400, 0, "heading"), "v") == spec.searched
    assert spec.declared()["search"] == search
    assert parse_table(spec.declared()) == spec
    stored = msgspec.json.decode(msgspec.json.encode(spec.declared()))
    assert parse_table(stored) == spec


@given(
    st.none()
    | st.fixed_dictionaries(
        {},
        optional={
            "model": st.sampled_from(["wordllama", "a", "b-2_c"]) | st.none(),
            "chunk": st.none()
            | st.fixed_dictionaries(
                {},
                optional={
                    "size": st.integers(200, 20_000),
                    "overlap": st.integers(0, 100),
                    "by": st.sampled_from(["heading", "sentence", "none"]),
                },
            ),
            "vector": st.sampled_from(["v", "w"]) | st.none(),
        },
    )
)
def test_what_is_declared_again_is_the_same(search: Any) -> None:
    spec = parse_table(declared(text=["body"], search=search))
    check_declarable(spec)
    assert parse_table(spec.declared()) == spec


def test_a_history_is_searched_as_its_entity_was_declared() -> None:
    spec = parse_table(declared(kind="entity", key=["title"], text=["body"], search={"model": "m"}))
    assert spec.history().search == spec.search


def test_own_vectors_need_no_text() -> None:
    for column in ("v", "w"):
        check_declarable(parse_table(declared(search={"vector": column})))


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ({"text": ["n"]}, "long"),
        ({"text": ["doc"]}, "json"),
        ({"text": ["body", "body"]}, "twice"),
        ({"text": ["none"]}, "not a column"),
        ({"search": {}}, "needs `text` or `vector`"),
        ({"search": {"model": "wordllama"}}, "needs `text` or `vector`"),
        ({"text": ["body"], "search": []}, "object"),
        ({"text": ["body"], "search": "wordllama"}, "object"),
        ({"text": ["body"], "search": {"modell": "m"}}, "modell"),
        ({"text": ["body"], "search": {"model": "No Name"}}, "No Name"),
        ({"text": ["body"], "search": {"model": "m" * 64}}, "mmm"),
        ({"text": ["body"], "search": {"model": 7}}, "7"),
        ({"text": ["body"], "search": {"model": "../m"}}, "../m"),
        ({"text": ["body"], "search": {"vector": "none"}}, "not a column"),
        ({"text": ["body"], "search": {"vector": "body"}}, "string"),
        ({"text": ["body"], "search": {"vector": "ints"}}, "list<int>"),
        ({"text": ["body"], "search": {"vector": "deep"}}, "list<list<float>>"),
        ({"text": ["body"], "search": {"vector": ["v"]}}, "name of a column"),
        ({"text": ["body"], "search": {"chunk": 800}}, "object"),
        ({"text": ["body"], "search": {"chunk": {"sise": 800}}}, "sise"),
        ({"text": ["body"], "search": {"chunk": {"size": 49}}}, "49"),
        ({"text": ["body"], "search": {"chunk": {"size": 20_001}}}, "20001"),
        ({"text": ["body"], "search": {"chunk": {"size": 800.5}}}, "whole number"),
        ({"text": ["body"], "search": {"chunk": {"size": True}}}, "whole number"),
        ({"text": ["body"], "search": {"chunk": {"overlap": -1}}}, "-1"),
        ({"text": ["body"], "search": {"chunk": {"size": 100, "overlap": 51}}}, "51"),
        ({"text": ["body"], "search": {"chunk": {"by": "page"}}}, "page"),
        ({"text": ["body"], "search": {"chunk": {"by": ["none"]}}}, "none"),
    ],
)
def test_what_cannot_be_searched_is_refused(words: dict[str, Any], part: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_declarable(decode_request(declared(**words), CreateTableRequest).spec())
    assert part in caught.value.message and caught.value.code in ("bad_search", "bad_declaration")
    assert caught.value.hint or caught.value.code == "bad_declaration"


def test_tables_from_before_are_still_read() -> None:
    """`text` of any type was declared before there was search; such a table must open, and cannot be declared anew."""
    spec = parse_table(declared(text=["n"]))
    with pytest.raises(InvalidInput):
        check_declarable(spec)


def test_a_small_chunk_shares_less_by_itself() -> None:
    search = parse_search({"chunk": {"size": 80}})
    assert search is not None and search.chunk == Chunking(80, 10, "sentence")
