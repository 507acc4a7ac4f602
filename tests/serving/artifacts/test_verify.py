"""Whatever is changed in an artifact, it is refused, with a code that says what."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.serving.artifacts import MANIFEST, ArtifactRefused, Manifest, seal_of
from frazil.serving.artifacts.engine_versions import running_engines, unreadable
from frazil.serving.artifacts.manifest import Seal
from frazil.serving.artifacts.verify import verify_artifact
from frazil.serving.artifacts.write import write_artifact
from tests.serving.artifacts.samples import PARTS, TABLE, source
from tests.serving.artifacts.test_write import Forgetful


@dataclasses.dataclass(frozen=True)
class Sample:
    folder: Path
    manifest: Manifest
    seal: Seal

    def refused(self, folder: Path | None = None) -> ArtifactRefused:
        with pytest.raises(ArtifactRefused) as refused:
            self.verified(folder)
        assert refused.value.hint and refused.value.details and refused.value.code == refused.value.faults[0].code
        return refused.value

    def verified(self, folder: Path | None = None) -> Manifest:
        return verify_artifact(folder or self.folder, table=TABLE, generation=self.manifest.generation, seal=self.seal)

    @property
    def names(self) -> list[str]:
        return [file.path for file in self.manifest.files]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sample, Sample]:
    """Two artifacts of one table: the same sizes, other words and vectors."""
    made = []
    for name, salt, seed in (("a", "x", 1), ("b", "y", 2)):
        folder = tmp_path_factory.mktemp("artifact") / name
        manifest = write_artifact(source(salt=salt, seed=seed), folder, PARTS)
        made.append(Sample(folder, manifest, seal_of((folder / MANIFEST).read_bytes())))
    return made[0], made[1]


@pytest.fixture
def copy(samples: tuple[Sample, Sample], tmp_path: Path) -> Sample:
    shutil.copytree(samples[0].folder, tmp_path / "copy")
    return dataclasses.replace(samples[0], folder=tmp_path / "copy")


@contextmanager
def restored(path: Path) -> Iterator[bytes]:
    content = path.read_bytes()
    try:
        yield content
    finally:
        path.write_bytes(content)


def test_what_nobody_touched_is_verified(samples: tuple[Sample, Sample]) -> None:
    for sample in samples:
        assert sample.verified() == sample.manifest


@settings(max_examples=150)
@given(data=st.data())
def test_any_bit_of_any_file(samples: tuple[Sample, Sample], data: st.DataObject) -> None:
    sample = samples[0]
    name = data.draw(st.sampled_from([*sample.names, MANIFEST]))
    with restored(sample.folder / name) as content:
        at = data.draw(st.integers(0, len(content) * 8 - 1))
        spoilt = bytearray(content)
        spoilt[at // 8] ^= 1 << at % 8
        (sample.folder / name).write_bytes(spoilt)
        code = sample.refused().code
        assert code == ("artifact_manifest_damaged" if name == MANIFEST else "artifact_file_hash")
    sample.verified()


@settings(max_examples=60)
@given(data=st.data())
def test_any_file_cut_off_or_longer(samples: tuple[Sample, Sample], data: st.DataObject) -> None:
    sample = samples[0]
    name = data.draw(st.sampled_from([*sample.names, MANIFEST]))
    with restored(sample.folder / name) as content:
        size = data.draw(st.integers(0, 2 * len(content)).filter(lambda size: size != len(content)))
        os.truncate(sample.folder / name, size)
        code = sample.refused().code
        assert code == ("artifact_manifest_damaged" if name == MANIFEST else "artifact_file_size")


@settings(max_examples=40)
@given(data=st.data())
def test_files_of_another_artifact_or_place(samples: tuple[Sample, Sample], data: st.DataObject) -> None:
    one, other = samples
    mine = data.draw(st.sampled_from([*one.names, MANIFEST]))
    donor = data.draw(st.sampled_from(samples))
    theirs = data.draw(st.sampled_from([*other.names, MANIFEST]))
    with restored(one.folder / mine) as content:
        brought = (donor.folder / theirs).read_bytes()
        if brought == content:
            return
        (one.folder / mine).write_bytes(brought)
        one.refused()
    one.verified()


def test_all_files_of_another_artifact(samples: tuple[Sample, Sample]) -> None:
    one, other = samples
    assert one.refused(other.folder).code == "artifact_manifest_damaged"
    with pytest.raises(ArtifactRefused) as refused:
        verify_artifact(other.folder, table=TABLE, generation=one.manifest.generation)
    assert refused.value.code == "artifact_other_generation"
    with pytest.raises(ArtifactRefused) as refused:
        verify_artifact(one.folder, table="main.others", seal=one.seal)
    assert refused.value.code == "artifact_other_table"


def test_missing_extra_and_linked_files(copy: Sample) -> None:
    extra = copy.folder / "below" / "extra"
    extra.parent.mkdir()
    extra.touch()
    assert copy.refused().code == "artifact_file_extra"
    shutil.rmtree(extra.parent)
    # tantivy puts these where it opens an index, be it only to read.
    lock = copy.folder / ".tantivy-meta.lock"
    lock.touch()
    copy.verified()
    lock.write_bytes(b"x")
    assert copy.refused().code == "artifact_file_extra"
    lock.unlink()
    (copy.folder / "elsewhere").symlink_to(copy.folder.parent)
    assert copy.refused().code == "artifact_file_extra"
    (copy.folder / "elsewhere").unlink()
    file = copy.folder / copy.names[0]
    file.rename(copy.folder.parent / "moved")
    assert copy.refused().faults[0].file == copy.names[0]
    file.symlink_to(copy.folder.parent / "moved")
    assert copy.refused().code == "artifact_file_missing"
    (copy.folder / MANIFEST).unlink()
    assert copy.refused().code == "artifact_manifest_missing"
    assert copy.refused(copy.folder / "nowhere").code == "artifact_manifest_missing"


def test_every_fault_is_told(copy: Sample) -> None:
    for name in copy.names:
        (copy.folder / name).unlink()
    assert {fault.file for fault in copy.refused().faults} == set(copy.names)


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../b"])
def test_a_manifest_that_names_files_elsewhere(copy: Sample, path: str) -> None:
    file = dataclasses.replace(copy.manifest.files[0], path=path)
    forged = dataclasses.replace(copy.manifest, files=(*copy.manifest.files, file)).encode()
    (copy.folder / MANIFEST).write_bytes(forged)
    assert dataclasses.replace(copy, seal=seal_of(forged)).refused().code == "artifact_manifest_damaged"


@pytest.mark.parametrize("field", ["rows", "chunks", "vectors", "quarantined"])
def test_counts_that_the_files_do_not_have(copy: Sample, field: str) -> None:
    counts = dataclasses.replace(copy.manifest.counts, **{field: getattr(copy.manifest.counts, field) + 1})
    forged = dataclasses.replace(copy.manifest, counts=counts).encode()
    (copy.folder / MANIFEST).write_bytes(forged)
    assert dataclasses.replace(copy, seal=seal_of(forged)).refused().code == "artifact_counts"


def test_parts_are_counted_and_asked(samples: tuple[Sample, Sample]) -> None:
    sample = samples[0]
    verify_artifact(sample.folder, table=TABLE, parts=PARTS)
    for loses, code in ((True, "artifact_counts"), (False, "artifact_canary")):
        with pytest.raises(ArtifactRefused) as refused:
            verify_artifact(sample.folder, table=TABLE, parts=[Forgetful(name="exact", loses=loses)])
        assert refused.value.code == code
    with pytest.raises(ArtifactRefused) as refused:
        verify_artifact(sample.folder, table=TABLE, parts=[Forgetful(name="exact", breaks=True)])
    assert refused.value.code == "artifact_part_unreadable"


def test_another_version_of_an_engine(samples: tuple[Sample, Sample]) -> None:
    here = running_engines()
    for engines in ({**here, "duckdb": "2.0.0"}, {**here, "duckdb": "1.0.0"}, {"pyarrow": here["pyarrow"]}):
        with pytest.raises(ArtifactRefused) as refused:
            verify_artifact(samples[0].folder, table=TABLE, engines=engines)
        assert refused.value.code == "artifact_engine_version"


@pytest.mark.parametrize(
    ("name", "written", "here", "readable"),
    [
        ("faiss", "1.15.1", "1.15.1", True),
        ("faiss", "1.15.1", "1.16.0", True),
        ("faiss", "1.15.1", "1.15.0", False),
        ("faiss", "1.15.1", "2.0.0", False),
        ("tantivy", "0.27.0", "0.27.3", True),
        ("tantivy", "0.27.0", "0.28.0", False),
        ("duckdb", "1.5.5", "1.5.4", False),
        ("pyarrow", "26.0.1", "30.0.0", True),
        ("pyarrow", "unknown", "30.0.0", False),
        ("another", "1.0", "1.0", True),
        ("another", "1.0", "1.0.1", False),
    ],
)
def test_which_versions_read_which(name: str, written: str, here: str, readable: bool) -> None:
    assert (not list(unreadable({name: written}, {name: here}))) is readable
