"""Fresh documents by themselves: states that stay as they were, bounds, changes that come twice or late."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from frazil.serving.search import (
    DocumentChange,
    FreshDocuments,
    FreshFull,
    FreshView,
    Searchable,
    SearchQuery,
    SearchResult,
    SearchState,
)
from tests.serving.search.world import World, document, search, searchable

WORDS_ONLY: Searchable = dataclasses.replace(searchable(), model=None)


def change(position: int, number: int, *, salt: int = 0, deleted: bool = False) -> DocumentChange:
    return DocumentChange(position, (f"d{number}",), None if deleted else document(number, salt=salt))


def keys(view: FreshView) -> set[str]:
    return {view.slots.documents[slot].key[0] for slot in view.live_slots}


def applied(fresh: FreshDocuments, view: FreshView, *changes: DocumentChange, upto: int) -> FreshView:
    after = fresh.apply(fresh.prepare(changes), upto, view)
    assert after is not None
    return after


def answers(searched: Searchable, view: FreshView) -> tuple[SearchResult, dict[str, str]]:
    """By vector all of it; by words what is found, as without a generation words get rarer or commoner with time."""
    by_words = SearchState(searched, view).search(SearchQuery("return a value", mode="text", k=20)).hits
    return (
        SearchState(searched, view).search(SearchQuery("return a value", mode="vector", k=20)),
        {hit.key[0]: hit.row["body"] for hit in by_words},
    )


def test_a_view_never_changes() -> None:
    fresh = FreshDocuments(searchable())
    empty = fresh.view(None)
    views = [empty]
    for position in range(1, 40):
        number = position % 7
        views.append(applied(fresh, views[-1], change(position, number, salt=position), upto=position + 1))
    asked = [answers(fresh.searchable, view) for view in views]
    for position in range(40, 900):
        views.append(applied(fresh, views[-1], change(position, position % 11, salt=position), upto=position + 1))
    assert [answers(fresh.searchable, view) for view in views[:40]] == asked
    assert asked[0][0].hits == () and len(asked[10][0].hits) == 7
    assert views[-1].slots is not views[1].slots, "it was swept meanwhile"
    assert keys(views[-1]) == {f"d{number}" for number in range(11)}
    assert views[-1].rows.num_rows == 11 and empty.rows.num_rows == 0


def test_changes_that_come_twice_or_out_of_turn() -> None:
    fresh = FreshDocuments(WORDS_ONLY)
    first = applied(fresh, fresh.view(None), change(5, 1, salt=1), change(6, 2), change(7, 2, deleted=True), upto=8)
    again = applied(fresh, first, change(6, 2), change(5, 1, salt=1), change(3, 1, salt=3), upto=4)
    assert again.head == 8 and keys(again) == {"d1"} and keys(fresh.view(None)) == {"d1"}
    assert again.rows.to_pylist() == [document(1, salt=1)]
    mixed = fresh.prepare([change(9, 4, salt=2), change(8, 4, salt=1), change(10, 5), change(11, 5, deleted=True)])
    assert [document.position for document in mixed.documents] == [9] and len(mixed.deleted) == 1


def test_there_is_an_end_to_what_is_kept() -> None:
    fresh = FreshDocuments(WORDS_ONLY, max_documents=5)
    view = applied(fresh, fresh.view(None), *(change(at, at) for at in range(1, 6)), upto=6)
    with pytest.raises(FreshFull) as full:
        fresh.apply(fresh.prepare([change(6, 1, salt=2), change(7, 99)]), 8, view)
    assert full.value.transient and full.value.hint
    assert fresh.head == 6 and keys(fresh.view(None)) == {f"d{at}" for at in range(1, 6)}
    assert fresh.view(None).rows.to_pylist()[0] == document(1), "nothing of it was taken"
    view = applied(fresh, view, change(6, 1, salt=2), upto=7)
    assert len(fresh) == 5, "a newer version takes the place of its older one"
    small = FreshDocuments(searchable(), max_bytes=3000)
    with pytest.raises(FreshFull):
        small.apply(small.prepare([change(at, at) for at in range(1, 9)]), 9)
    assert small.bytes == 0 and len(small) == 0


def test_a_full_tail_gives_up_the_way_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    serving = world.serving(fresh=FreshDocuments(world.searched, max_documents=4))
    serving.apply([change(at, at) for at in range(1, 5)], 5)
    with pytest.raises(FreshFull):
        serving.apply([change(5, 5)], 6)
    serving.swap(world.build([document(at) for at in range(1, 3)], 3))
    assert serving.status().fresh_documents == 2
    serving.apply([change(5, 5)], 6)
    assert serving.fresh.floor == 3 and serving.status().position == 6
    assert {hit.key[0] for hit in search(serving, SearchQuery("return", mode="vector")).hits} == {
        f"d{at}" for at in range(1, 6)
    }
    serving.close()


def test_own_vectors_come_with_the_row() -> None:
    searched = searchable(vector="own")
    rows = [
        {**document(1), "own": [1.0] + [0.0] * 255},
        {**document(2), "own": None},
        {**document(3), "own": [0.0] * 256},
    ]
    vector, none, zero = searched.in_pieces(rows)
    assert vector.of == (0,) and vector.vectors[0][0] == 1.0
    assert none.chunks == () and len(zero.chunks) == 1 and zero.of == ()
