"""Grants: how they are written, which tables they match, and what several of them show together."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.access import Forbidden, Grant, Identity, ReadGrant, parse_grants
from frazil.access.grants import Mask, combined, hidden_by
from frazil.access.identity import ADMIN
from frazil.errors import InvalidInput


def identity(*grants: Any) -> Identity:
    return Identity("id", "name", parse_grants(list(grants)))


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        ("sql", {"scope": "sql"}),
        ("admin", {"scope": "admin"}),
        ("read:notes", {"scope": "read:notes"}),
        (" read:main.notes ", {"scope": "read:notes"}),
        ("ingest:sales.orders", {"scope": "ingest:sales.orders"}),
        ("read:sales.*", {"scope": "read:sales.*"}),
        ("read:main.*", {"scope": "read:main.*"}),
        ("ingest:*", {"scope": "ingest:*"}),
        ("read:system.audit", {"scope": "read:system.audit"}),
        ({"scope": "read:notes", "where": " a > 1 "}, {"scope": "read:notes", "where": "a > 1"}),
        ({"scope": "read:notes", "mask": ["b", "a"]}, {"scope": "read:notes", "mask": {"a": "null", "b": "null"}}),
        ({"scope": "read:notes", "mask": {"a": "hash"}}, {"scope": "read:notes", "mask": {"a": "hash"}}),
        ({"scope": "read:notes", "mask": None, "where": None}, {"scope": "read:notes"}),
    ],
)
def test_writing_them(declared: Any, shown: dict[str, Any]) -> None:
    (grant,) = parse_grants([declared])
    assert grant.declared() == shown
    assert parse_grants([shown]) == (grant,), "what is shown declares the same again"
    assert msgspec.json.decode(msgspec.json.encode(grant), type=Grant) == grant


@pytest.mark.parametrize(
    "declared",
    [
        None, "sql", [], {}, [None], [1], [[]], [""], ["read"], ["read:"], ["write:notes"], ["sql:notes"], ["admin:*"],
        ["READ:notes"], ["read:Notes"], ["read:a.b.c"], ["read:**"], ["read:no*"], ["read:*.notes"], ["read:.*"],
        ["read:a.b.*"], ["read:dropped.notes"], ["read:dropped.*"], ["read:notes;drop"], ["ingest:system.audit"],
        ["ingest:system.*"], [{"scope": "read:notes", "were": "a"}], [{"where": "a"}],
        [{"scope": "read:*", "where": "a"}],
        [{"scope": "read:sales.*", "mask": ["a"]}], [{"scope": "sql", "where": "a"}],
        [{"scope": "ingest:notes", "mask": ["a"]}], [{"scope": "read:notes", "where": ""}],
        [{"scope": "read:notes", "where": "  "}], [{"scope": "read:notes", "where": 1}],
        [{"scope": "read:notes", "where": "a\0"}], [{"scope": "read:notes", "where": "a" * 10_001}],
        [{"scope": "read:notes", "mask": "a"}], [{"scope": "read:notes", "mask": {"a": "blur"}}],
        [{"scope": "read:notes", "mask": {"a": None}}], [{"scope": "read:notes", "mask": [1]}],
        [{"scope": "read:notes", "mask": {"a": ["null"]}}], [{"scope": "read:notes", "mask": {"a": "hash\n"}}],
        ["sql"] * 201,
    ],
)  # fmt: skip
def test_what_is_none(declared: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_grants(declared)
    assert refused.value.code in ("bad_grant", "bad_table_name")


def test_which_tables_they_match() -> None:
    one, namespace, every = identity("read:notes"), identity("ingest:sales.*"), identity("read:*", "ingest:*")
    assert one.knows("main.notes")
    assert not any(one.knows(name) for name in ("main.notes2", "main.note", "sales.notes", "system.audit"))
    assert namespace.may_ingest("sales.orders")
    assert not any(namespace.knows(name) for name in ("salesx.orders", "main.sales", "main.orders"))
    assert every.may_ingest("main.notes") and every.read_grant("sales.orders") == ReadGrant()
    assert not every.knows("system.audit"), "tables of the system have to be named"
    assert identity("read:system.*").read_grant("system.audit") == ReadGrant()


def test_nothing_is_allowed_that_is_not_granted() -> None:
    reader, writer, asker = identity("read:notes"), identity("ingest:notes"), identity("sql")
    assert not reader.may_ingest("main.notes") and not reader.may_sql and not reader.is_admin
    assert writer.read_grant("main.notes") is None and not writer.may_sql and not writer.is_admin
    assert not asker.knows("main.notes") and asker.may_sql and not asker.is_admin
    for one in (reader, writer, asker):
        with pytest.raises(Forbidden) as refused:
            one.require_admin()
        assert (refused.value.status, refused.value.code) == (403, "forbidden")
    with pytest.raises(Forbidden):
        reader.require_sql()


def test_an_admin_may_everything() -> None:
    for admin in (ADMIN, identity("admin"), identity({"scope": "read:notes", "where": "false"}, "admin")):
        assert admin.is_admin and admin.may_sql and admin.may_ingest("main.notes")
        assert admin.read_grant("main.notes") == ReadGrant() == admin.read_grant("system.audit")
        admin.require_admin()
        admin.require_sql()


def test_several_filters_are_one_condition() -> None:
    north = {"scope": "read:notes", "where": "team = 'north' -- of course"}
    south = {"scope": "read:notes", "where": "team = 'south'"}
    grant = identity(north, south, north).read_grant("main.notes")
    assert grant is not None
    assert grant.where == "(\nteam = 'north' -- of course\n) OR (\nteam = 'south'\n)"
    assert not grant.is_whole


@pytest.mark.parametrize(
    ("grants", "filters", "masks"),
    [
        ([(None, {}), ("a", {"x": "null"})], (), {}),
        ([("a", {"x": "null"}), (None, {})], (), {}),
        ([("a", {}), ("b", {"x": "hash"})], ("a", "b"), {"x": "hash"}),
        ([("a", {"x": "hash"}), ("b", {"x": "redact"})], ("a", "b"), {"x": "redact"}),
        ([("a", {"x": "hash"}), ("c", {"y": "null"})], ("a", "c"), {"x": "hash", "y": "null"}),
        ([("a", {}), (None, {"x": "null"})], (), {"x": "null"}),
        ([(None, {"x": "hash"}), ("a", {"x": "null", "y": "null"})], (), {"x": "hash"}),
        ([(None, {"x": "hash"}), (None, {"y": "hash"})], (), {"x": "hash", "y": "hash"}),
        ([(None, {"x": "null"}), (None, {"x": "hash"})], (), {"x": "hash"}),
        ([(None, {"x": "hash"}), (None, {"x": "hash(p)"})], (), {"x": "hash(p)"}),
        ([("a", {"x": "hash"}), ("b", {"x": "hash(p)"})], ("a", "b"), {"x": "hash"}),
        ([("a", {"x": "hash(q)"}), ("b", {"x": "hash(p)"})], ("a", "b"), {"x": "hash"}),
        ([(None, {"x": "hash(q)"}), (None, {"x": "hash(p)"})], (), {"x": "hash"}),
        ([("a", {"x": "hash(p)"}), ("b", {"x": "redact"})], ("a", "b"), {"x": "redact"}),
    ],
)  # fmt: skip
def test_masks_of_several(
    grants: list[tuple[str | None, dict[str, Mask]]], filters: tuple[str, ...], masks: dict[str, Mask]
) -> None:
    found = combined([Grant("read", "main.t", where, hidden) for where, hidden in grants])
    assert found == ReadGrant(filters, masks)
    assert combined([]) is None


some_grants = st.lists(
    st.builds(
        lambda where, masks: Grant("read", "main.t", where, masks),
        st.none() | st.sets(st.sampled_from("123")).map(lambda rows: "".join(sorted(rows)) or "-"),
        st.dictionaries(st.sampled_from("abc"), st.sampled_from(["null", "hash", "hash(p)", "hash(q)", "redact"])),
    ),
    min_size=1,
    max_size=5,
)


@given(some_grants)
def test_together_they_show_no_row_better_than_one_of_them_does(grants: list[Grant]) -> None:
    """A filter is here the text of the rows it shows."""
    found = combined(grants)
    assert found is not None
    for row in "123":
        showing = [grant for grant in grants if grant.where is None or row in grant.where]
        shown = not found.filters or any(row in text for text in found.filters)
        assert shown == bool(showing), "a row is shown if one of them shows it"
        if shown:
            assert any(
                all(
                    found.masks.get(column) == mask or hidden_by(found.masks.get(column, "")) > hidden_by(mask)
                    for column, mask in grant.masks.items()
                )
                for grant in showing
            ), "whole rows: two grants are not put together to one that shows more than either"


@given(some_grants, st.randoms())
def test_their_order_does_not_matter(grants: list[Grant], random: Any) -> None:
    first = combined(grants)
    random.shuffle(grants)
    second = combined(grants)
    assert first is not None and second is not None
    assert (set(first.filters), first.masks) == (set(second.filters), second.masks)
