"""Objects of an S3 bucket, by signed HTTP.

Not by obstore or pyarrow, which move bytes well but can neither change the tags of an object nor read them, so that a
signer is needed beside them; and pyarrow leaves a folder marker for each object that it deletes. Once requests are
signed, these few verbs are what is left to do.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from urllib.parse import urlencode
from xml.etree.ElementTree import Element, SubElement, tostring

from frazil.crash import crash_point
from frazil.errors import FrazilError, NotFound, Unavailable
from frazil.storage.disk_errors import translated_disk_errors
from frazil.storage.objects import StoredObject, checked_key
from frazil.storage.s3_requests import S3Link, parsed
from frazil.storage.warehouse import Warehouse

PART_BYTES = 16 << 20
_MAX_PARTS = 10_000
_AT_ONCE = 4
_NOT_IMPLEMENTED = 501


class S3Objects:
    def __init__(self, warehouse: Warehouse, prefix: str) -> None:
        self._link = S3Link(warehouse)
        self._prefix = f"{self._link.prefix}/{prefix}/".lstrip("/")

    def put_file(self, key: str, path: Path, *, tags: Mapping[str, str] | None = None) -> None:
        name = self._name(key)
        headers = {"x-amz-tagging": urlencode(tags)} if tags else {}
        size = path.stat().st_size
        if size <= PART_BYTES:
            self._link.ask("PUT", name, headers=headers, content=path.read_bytes())
        else:
            self._put_parts(name, path, size, headers)

    def get_file(self, key: str, path: Path) -> None:
        name = self._name(key)
        first = self._link.ask("GET", name, headers=_range(0, PART_BYTES), accept=frozenset({416}))
        with translated_disk_errors(f"write {path}"), path.open("wb") as file:
            if first.status_code == 416:
                return  # it is empty: there is no first byte to ask for
            size = int(first.headers["content-range"].rpartition("/")[2]) if first.status_code == 206 else None
            file.write(first.content)
            file.flush()
            if size is None or size <= len(first.content):
                return

            def fetch(at: int) -> None:
                wanted = min(PART_BYTES, size - at)
                content = self._link.ask("GET", name, headers=_range(at, wanted)).content
                if len(content) != wanted:
                    raise Unavailable(
                        f"the object store sent {len(content)} bytes of s3 object {name}, expected {wanted}"
                    )
                os.pwrite(file.fileno(), content, at)

            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(fetch, range(len(first.content), size, PART_BYTES)))

    def get(self, key: str) -> bytes:
        return self._link.ask("GET", self._name(key)).content

    def list(self, below: str = "") -> Iterator[StoredObject]:
        query = {"list-type": "2", "prefix": self._prefix + below}
        while True:
            page = parsed(self._link.ask("GET", "", query=query))
            for found in page.iter("Contents"):
                key = _text(found, "Key").removeprefix(self._prefix)
                if key and not key.endswith("/"):  # the marker that other tools make of a folder
                    yield StoredObject(key, int(_text(found, "Size")), _seconds(_text(found, "LastModified")))
            if page.findtext("IsTruncated") != "true":
                return
            query["continuation-token"] = _text(page, "NextContinuationToken")

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._link.ask("DELETE", self._name(key), accept=frozenset({404}))

    def tag(self, key: str, tags: Mapping[str, str]) -> bool:
        root = Element("Tagging")
        listed = SubElement(root, "TagSet")
        for name, value in tags.items():
            tag = SubElement(listed, "Tag")
            SubElement(tag, "Key").text = name
            SubElement(tag, "Value").text = value
        content = tostring(root)
        # AWS takes this request with a checksum only, and knows this one since the beginning.
        checksum = base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
        answer = self._link.ask(
            "PUT",
            self._name(key),
            query={"tagging": ""},
            headers={"content-md5": checksum},
            content=content,
            accept=frozenset({_NOT_IMPLEMENTED}),
        )
        return answer.is_success

    def tags(self, key: str) -> Mapping[str, str] | None:
        answer = self._link.ask("GET", self._name(key), query={"tagging": ""}, accept=frozenset({_NOT_IMPLEMENTED}))
        if not answer.is_success:
            return None
        return {_text(tag, "Key"): tag.findtext("Value") or "" for tag in parsed(answer).iter("Tag")}

    def sweep(self, *, older_than_seconds: float) -> int:
        query = {"uploads": "", "prefix": self._prefix}
        removed = 0
        page = parsed(self._link.ask("GET", "", query=query))
        # One page of a thousand is enough: the next sweep takes the next one.
        for upload in page.iter("Upload"):
            key, began = _text(upload, "Key"), _seconds(_text(upload, "Initiated"))
            if key.startswith(self._prefix) and time.time() - began > older_than_seconds:
                self._abort(key, _text(upload, "UploadId"))
                removed += 1
        return removed

    def _name(self, key: str) -> str:
        return self._prefix + checked_key(key)

    def _put_parts(self, name: str, path: Path, size: int, headers: Mapping[str, str]) -> None:
        """The parts are not visible before the last request, which joins them to one object."""
        begun = parsed(self._link.ask("POST", name, query={"uploads": ""}, headers=headers))
        upload = _text(begun, "UploadId")
        crash_point("object_upload_begun")
        part_bytes = max(PART_BYTES, -(-size // _MAX_PARTS))
        descriptor = os.open(path, os.O_RDONLY)

        def send(number: int) -> str:
            content = os.pread(descriptor, part_bytes, (number - 1) * part_bytes)
            query = {"partNumber": str(number), "uploadId": upload}
            return self._link.ask("PUT", name, query=query, content=content).headers["etag"]

        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                etags = list(pool.map(send, range(1, -(-size // part_bytes) + 1)))
            crash_point("object_before_complete")
            self._complete(name, upload, etags)
        except BaseException:
            with contextlib.suppress(FrazilError):
                self._abort(name, upload)
            raise
        finally:
            os.close(descriptor)

    def _complete(self, name: str, upload: str, etags: Sequence[str]) -> None:
        root = Element("CompleteMultipartUpload")
        for number, etag in enumerate(etags, start=1):
            part = SubElement(root, "Part")
            SubElement(part, "PartNumber").text = str(number)
            SubElement(part, "ETag").text = etag
        try:
            answer = self._link.ask("POST", name, query={"uploadId": upload}, content=tostring(root))
        except NotFound as error:
            # A repeated request whose first answer was lost finds no upload any more: then the object must exist.
            if not any(
                found.key == name.removeprefix(self._prefix) for found in self.list(name.removeprefix(self._prefix))
            ):
                raise Unavailable(
                    f"the object store lost the upload of s3 object {name}", code="storage_unavailable"
                ) from error
            return
        # A failure while the store puts the parts together comes with the status 200.
        if (body := parsed(answer)).tag == "Error":
            raise Unavailable(
                f"the upload of {name} failed at the end: {body.findtext('Code')}", code="storage_unavailable"
            )

    def _abort(self, name: str, upload: str) -> None:
        self._link.ask("DELETE", name, query={"uploadId": upload}, accept=frozenset({404}))


def _range(at: int, size: int) -> dict[str, str]:
    return {"range": f"bytes={at}-{at + size - 1}"}


def _text(element: Element, name: str) -> str:
    if not (text := element.findtext(name)):
        raise Unavailable(f"the response of the object store has no {name}", code="storage_unavailable")
    return text


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
