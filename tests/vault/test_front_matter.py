"""Front matter is read as it stands, safely, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.vault.front_matter import BadFrontMatter, load, split


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-01-02", "2024-01-02"),
        ("2024-01-02 10:00:00", "2024-01-02 10:00:00"),
        ("yes", "yes"),
        ("12:30", "12:30"),
        ("007", "007"),
        ("1_000", "1_000"),
        ("12", 12),
        ("0x1f", 31),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("1.10", 1.1),
        ("0.10000000000000000000001", "0.10000000000000000000001"),
        ("1e400", "1e400"),
        (".inf", ".inf"),
        ("TRUE", True),
        ("~", None),
        ("", None),
        ("[a, {b: c}]", ["a", {"b": "c"}]),
    ],
)
def test_values_are_those_of_the_file(text: str, value: Any) -> None:
    assert load(f"---\nkey: {text}\n---\n") == {"key": value}


BOMB = "---\na: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(8)
)


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ("---\na: 1\na: 2\n---\n", "twice"),
        ("---\n1: a\n'1': b\n---\n", "twice"),
        ("---\na: [\n---\n", "not YAML"),
        ("---\na: b: c\n---\n", "not YAML"),
        ("---\n- a\n---\n", "keys and values"),
        ("---\njust text\n---\n", "keys and values"),
        ("---\n? [a]\n: b\n---\n", "key that is not a text"),
        ("---\na: !!python/object/apply:os.system [x]\n---\n", "type"),
        (BOMB + "---\n", "more than"),
        ("---\na: &a [*a]\n---\n", "deeper"),
        ("---\na: " + "[" * 5000 + "]" * 5000 + "\n---\n", "deeper"),
        ("---\na: " + "x" * 70_000 + "\n---\n", "characters"),
        ("---\na: \x07\n---\n", "not YAML"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(block: str, reason: str) -> None:
    with pytest.raises(BadFrontMatter, match=reason):
        load(block)


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("---\na: 1\n---\nbody", "---\na: 1\n---\n"),
        ("---\n---", "---\n---"),
        ("---\r\na: 1\r\n--- \r\n\r\nbody", "---\r\na: 1\r\n--- \r\n"),
        ("---\na: 1\n----\nbody", ""),
        ("---\na: 1\n ---\nbody", ""),
        ("---\nno end", ""),
        ("\n---\na: 1\n---\n", ""),
        ("----\na\n---\n", ""),
        ("", ""),
    ],
)
def test_the_block_ends_at_the_first_line_of_three_dashes(text: str, block: str) -> None:
    assert split(text) == (block, text[len(block) :])
