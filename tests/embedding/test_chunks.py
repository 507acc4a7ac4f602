"""Chunks: nothing lost, none too long, the same for everybody."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from frazil.embedding import Chunk, chunked, document_text
from frazil.embedding.chunks import content_hash
from frazil.events.declaration import ChunkBoundary, Chunking

PROSE = (
    "Ice forms first as frazil. These are loose needles in cold water. They gather into slush. "
    "Later the slush freezes to pancakes! Do pancakes freeze together? Dr. Weiss says so, e.g. in calm bays. "
)
PIECES = st.sampled_from(
    ["a", "Wort ", "x. ", "End. ", "! ", "? A", "\n", "\n\n", "\r\n", "# H\n", "\n## Sub\n", "```\n", "- item\n", "…",
     "。", "日本語", "👩‍👩‍👧", "e\u0301", "👍🏽", " ", "\u00a0", "\t", ".", "\ud800", "0", "#", "\u2028"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=120).map("".join) | st.text(max_size=300)
CHUNKINGS = st.builds(
    lambda size, share, by: Chunking(size=size, overlap=int(size * share), by=by),
    st.integers(1, 60),
    st.floats(0, 0.9),
    st.sampled_from(["heading", "sentence", "none"]),
)


@given(TEXTS, CHUNKINGS)
@example("a" * 500, Chunking(50, 49, "none"))
@example("Wort a", Chunking(2, 1, "heading"))
@example("a\u2028aa", Chunking(2, 1, "heading"))
@example("word" + " " * 300 + "word", Chunking(20, 10, "none"))
@example(". " * 100, Chunking(7, 3, "sentence"))
def test_chunks_hold_all_of_the_text_in_order(text: str, chunking: Chunking) -> None:
    chunks = chunked(text, chunking)
    covered = 0
    for number, chunk in enumerate(chunks):
        assert chunk.number == number
        assert chunk.text == text[chunk.start : chunk.end]
        assert 0 < len(chunk.text) <= chunking.size
        assert not chunk.text[0].isspace() and not chunk.text[-1].isspace()
        assert not text[covered : chunk.start].strip(), "only white space lies between chunks"
        assert chunk.end > covered, "each chunk has something new"
        if number:
            assert chunk.start > chunks[number - 1].start
            assert covered - chunk.start <= chunking.overlap
        covered = chunk.end
    assert not text[covered:].strip()
    assert chunked(text, chunking) == chunks


@given(TEXTS.filter(lambda text: len(text) <= 200), st.sampled_from(["sentence", "none"]))
def test_a_text_that_fits_is_one_chunk(text: str, by: ChunkBoundary) -> None:
    chunks = chunked(text, Chunking(200, 20, by))
    assert [chunk.text for chunk in chunks] == ([text.strip()] if text.strip() else [])


def test_sentences_stay_whole_and_are_shared_whole() -> None:
    chunks = chunked(PROSE * 3, Chunking(160, 70, "sentence"))
    assert len(chunks) > 4
    for before, after in pairwise(chunks):
        assert before.text[-1] in ".!?"
        assert after.text.split(" ")[0] in {"Ice", "These", "They", "Later", "Do", "Dr."}
        assert after.start < before.end
    assert not any(chunk.text.endswith(("Dr.", "e.g.")) for chunk in chunks)


@given(
    st.lists(st.integers(1, 9).map(lambda words: "Word" + " more" * words + "."), min_size=1, max_size=30),
    st.integers(60, 150),
    st.integers(0, 70),
)
def test_sentences_are_packed_as_a_plain_rule_says(sentences: list[str], size: int, overlap: int) -> None:
    """Take sentences while they fit; go back over those that the overlap has room for, if one more then fits."""
    expected, first = [], 0
    while True:
        last = first
        while last < len(sentences) and len(" ".join(sentences[first : last + 1])) <= size:
            last += 1
        expected.append(" ".join(sentences[first:last]))
        if last == len(sentences):
            break
        shared = [
            start
            for start in range(first + 1, last)
            if len(" ".join(sentences[start:last])) <= overlap and len(" ".join(sentences[start : last + 1])) <= size
        ]
        first = shared[0] if shared else last
    assert [chunk.text for chunk in chunked(" ".join(sentences), Chunking(size, overlap, "sentence"))] == expected


def test_a_document_is_its_columns_as_paragraphs() -> None:
    assert document_text(["Title", None, " ", "Body."]) == "Title\n\nBody."
    assert document_text([]) == document_text([None, ""]) == ""


def test_a_sentence_longer_than_the_size_is_cut_between_words_and_shares_words() -> None:
    text = "The " + "very " * 100 + "end. Then another."
    chunks = chunked(text, Chunking(60, 20, "sentence"))
    assert all(word in {"The", "very", "end.", "Then", "another."} for chunk in chunks for word in chunk.text.split())
    shared = [before.end - after.start for before, after in pairwise(chunks)]
    assert shared.count(0) < len(shared) // 2 and max(shared) <= 20


def test_headings_begin_chunks_and_are_told_as_context() -> None:
    text = (
        "Before.\n\n# Guide\n\n## Setup ##\nInstall it.\r\n\n### On Linux\nUse a wheel.\n\n"
        "```sh\n# no heading\n```\n## Use #1\nRun it.\n#hashtag is none\n"
    )
    found = [(chunk.text.split("\n")[0], chunk.context) for chunk in chunked(text, Chunking(800, 100, "heading"))]
    assert found == [
        ("Before.", ""),
        ("# Guide", "Guide › Setup"),
        ("### On Linux", "Guide › Setup › On Linux"),
        ("## Use #1", "Guide › Use #1"),
    ]
    last = chunked(text, Chunking(800, 100, "heading"))[-1]
    assert last.text.endswith("#hashtag is none") and last.passage == f"Guide › Use #1\n{last.text}"


def test_chunks_of_one_heading_keep_its_context_and_do_not_share_with_the_next() -> None:
    text = f"# One\n{PROSE * 3}\n# Two\n{PROSE}"
    chunks = chunked(text, Chunking(150, 60, "heading"))
    second = text.index("# Two")
    assert {chunk.context for chunk in chunks if chunk.start < second} == {"One"}
    assert {chunk.context for chunk in chunks if chunk.start >= second} == {"Two"}
    assert all(chunk.end <= second or chunk.start >= second for chunk in chunks)


@pytest.mark.parametrize("cluster", ["👩‍👩‍👧‍👦", "👍🏽", "e\u0301\u0323", "❤️", "\r\n"])
def test_what_people_see_as_one_character_is_not_cut(cluster: str) -> None:
    text = f"x{cluster}" * 60
    for size in range(12, 30):
        for chunk in chunked(text, Chunking(size, 0, "none")):
            assert chunk.text.replace(cluster.strip() or cluster, "").strip("x\r\n") == ""


@pytest.mark.parametrize("by", ["heading", "sentence", "none"])
@pytest.mark.parametrize(
    "piece", ["a", ". ", ".", "\n", " ", "# \n", "\n\n x", "```\n", "日", "a. B", "#", "\r", "- \n", "!?)"]
)
def test_huge_texts_take_time_by_their_length_alone(piece: str, by: ChunkBoundary) -> None:
    """Four times the text takes about four times as long; a square of it would take sixteen times."""

    def seconds(characters: int) -> float:
        text = (piece * (characters // len(piece) + 1))[:characters] + " end"
        best = 1e9
        for _ in range(3):
            began = time.process_time()
            chunked(text, Chunking(800, 100, by))
            best = min(best, time.process_time() - began)
        return best

    assert seconds(240_000) < 10 * seconds(60_000) + 0.05


def test_equal_texts_alone_have_equal_hashes() -> None:
    texts = ["", " ", "a", "A", "a ", "ä", "a\u0308", "\ud800", "日本"]
    assert len({content_hash(text) for text in texts}) == len(texts)
    # It is stored with every chunk: another hash would embed everything again.
    assert content_hash("frazil") == "7964f3f81e135da8eafd2efd0d53b3b6"


def test_a_chunk_without_headings_is_embedded_as_it_stands() -> None:
    assert Chunk(0, 0, 1, "a").passage == "a"
