"""Signatures: the examples of the published specification, and words that have to be escaped."""

from __future__ import annotations

from datetime import UTC, datetime

from frazil.storage.sigv4 import EMPTY, Signer, escaped, query_text

SIGNER = Signer("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1")
AT = datetime(2013, 5, 24, tzinfo=UTC)
HOST = {"Host": "examplebucket.s3.amazonaws.com"}


def test_the_example_of_a_read() -> None:
    headers = SIGNER.headers("GET", "/test.txt", {}, {**HOST, "Range": "bytes=0-9"}, EMPTY, AT)
    assert headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


def test_the_example_of_a_question_without_a_value() -> None:
    headers = SIGNER.headers("GET", "/", {"lifecycle": ""}, HOST, EMPTY, AT)
    assert headers["authorization"].endswith("fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543")


def test_the_example_of_a_listing() -> None:
    headers = SIGNER.headers("GET", "/", {"prefix": "J", "max-keys": "2"}, HOST, EMPTY, AT)
    assert headers["authorization"].endswith("34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7")


def test_words_are_escaped_once_and_in_order() -> None:
    assert escaped("/lake/a b/ü+&=~.f32") == "/lake/a%20b/%C3%BC%2B%26%3D~.f32"
    assert query_text({"prefix": "a/b c", "list-type": "2"}) == "list-type=2&prefix=a%2Fb%20c"


def test_the_secret_is_not_shown() -> None:
    assert "wJalr" not in repr(SIGNER) and "AKIA" not in repr(SIGNER)
