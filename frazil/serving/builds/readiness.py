"""Readiness of a build: the snapshot, its vectors and its declaration, and whether the artifact is there already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frazil.embedding import recipe_of
from frazil.errors import NotFound
from frazil.events.declaration import TableSpec
from frazil.lake.bulk import files_at, plan_files, rows_by, sequence_number, whole_files
from frazil.lake.catalog import Lake, LakeTable, load_entity, watermark_at
from frazil.lake.derived import EmbeddingProgress, embedded_up_to, embeddings_table, refused_embeddings_table
from frazil.serving.artifacts.manifest import (
    MANIFEST,
    ArtifactColumn,
    ArtifactModel,
    Manifest,
    SourceState,
    decode_manifest,
)
from frazil.serving.artifacts.register import ArtifactEntry, ArtifactState
from frazil.serving.artifacts.shelf import Shelf
from frazil.serving.builds.kept_vectors import kept_manifest, newest
from frazil.serving.builds.plan import BuildPlan, Files, Origin
from frazil.serving.index_choice import chosen_index
from frazil.serving.profiles import Profile
from frazil.serving.vectors.config import IndexConfig


@dataclass(frozen=True)
class BuildInput:
    """One snapshot of a table whose chunks all have their vector, or the reason why not."""

    table: LakeTable
    snapshot_id: int
    cut: SourceState
    model: ArtifactModel
    embeddings: LakeTable
    refused: LakeTable


def unchanged_since(table: LakeTable, snapshot_id: int | None) -> bool:
    """Whether the table has the rows that it had then: the same snapshot, or only compacted since."""
    for snapshot in table.snapshots():
        if snapshot.snapshot_id == snapshot_id:
            return True
        if snapshot.operation != "replace":
            return False
    return table.snapshot_id == snapshot_id


def build_input(lake: Lake, table: LakeTable, model: str, *, newest_only: bool) -> BuildInput | None:
    """What can be built now; None while the vectors have not come so far.

    With `newest_only` that is the table as it is; else any snapshot that is still there, so that a table into which
    rows come all the time is built at all.
    """
    embeddings, refused = embeddings_table(lake, table.name), refused_embeddings_table(lake, table.name)
    state = embedded_up_to(embeddings, model)
    if embeddings is None or refused is None or state is None or state.snapshot_id is None:
        return None
    if (state.table, state.recipe) != (table.uuid, recipe_of(table.spec, model)):
        return None
    snapshot_id = table.snapshot_id if unchanged_since(table, state.snapshot_id) else state.snapshot_id
    if newest_only and snapshot_id != table.snapshot_id:
        return None
    if snapshot_id is None or not _has(table, snapshot_id):
        return None
    watermark = watermark_at(table, snapshot_id)
    if watermark is None:
        return None
    return BuildInput(table, snapshot_id, _cut(lake, table, snapshot_id, watermark), _model(state), embeddings, refused)


def _has(table: LakeTable, snapshot_id: int) -> bool:
    return any(snapshot.snapshot_id == snapshot_id for snapshot in table.snapshots())


def _cut(lake: Lake, table: LakeTable, snapshot_id: int, watermark: int) -> SourceState:
    if table.spec.kind != "entity":
        return SourceState(table.stream_identity, watermark, snapshot_id, table.uuid)
    stream = load_entity(lake, table.name).history.stream_identity
    return SourceState(stream, watermark, snapshot_id, table.uuid, snapshot_id, watermark)


def _model(state: EmbeddingProgress) -> ArtifactModel:
    return ArtifactModel(state.model, state.version, state.dims)


def index_description(
    spec: TableSpec, build_input: BuildInput, index: IndexConfig | None, *, vss: bool
) -> Mapping[str, Any]:
    """How an artifact was made, as its manifest tells it: two that are described alike differ only by their rows."""
    return {
        "vector": None if index is None else index.as_json(),
        "text": list(spec.text),
        "vss": vss,
        "recipe": recipe_of(spec, build_input.model.name),
        "vectors": rows_by(build_input.embeddings, "model").get(build_input.model.name, 0),
        "quarantined": rows_by(build_input.refused, "model").get(build_input.model.name, 0),
    }


def wanted_index(lake: Lake, shelf: str, model: str, profile: Profile | None) -> IndexConfig | None:
    """The profile's own, else what was chosen for the shelf and model; None: by the number of vectors."""
    if profile is not None and profile.index is not None:
        return IndexConfig.parse(profile.index)
    choice = chosen_index(lake.registry, shelf, model)
    return None if choice is None else choice.index


def is_built(shelf: Shelf, plan: BuildPlan, table: LakeTable) -> ArtifactEntry | None:
    """The current artifact, if it is what this plan would make."""
    current = shelf.register().current
    if current is None or current.cut.table_id != plan.cut.table_id or current.cut.stream != plan.cut.stream:
        return None
    is_same = current.cut.snapshot_id == plan.cut.snapshot_id or unchanged_since(table, current.cut.snapshot_id)
    if not is_same or current.model != plan.model:
        return None
    manifest = _manifest(shelf, current)
    if manifest is None or dict(manifest.index) != dict(plan.described):
        return None
    return current if manifest.schema == _columns(plan.spec) else None


def is_declared_alike(shelf: Shelf, current: ArtifactEntry, spec: TableSpec, model: str) -> bool:
    """Whether the same rows would be searched alike today, as far as the table's declaration goes."""
    manifest = _manifest(shelf, current)
    if manifest is None or manifest.schema != _columns(spec):
        return False
    declared = {"text": list(spec.text), "recipe": recipe_of(spec, model)}
    return all(manifest.index.get(name) == value for name, value in declared.items())


def _columns(spec: TableSpec) -> tuple[ArtifactColumn, ...]:
    return tuple(ArtifactColumn(field.name, str(field.type)) for field in spec.row_schema())


def _manifest(shelf: Shelf, entry: ArtifactEntry) -> Manifest | None:
    try:
        return decode_manifest(shelf.objects.get(shelf.key(entry.generation, MANIFEST)))
    except NotFound:
        return None


def was_withdrawn(shelf: Shelf, table: LakeTable) -> bool:
    """Whether an artifact of these very rows was rolled back: another one would be as bad."""
    return any(
        entry.withdrawn and entry.state is not ArtifactState.REMOVING and unchanged_since(table, entry.cut.snapshot_id)
        for entry in shelf.register().entries
    )


def planned(
    lake: Lake, build_input: BuildInput, shelf: str, *, index: IndexConfig | None, vss: bool, kept: Path
) -> BuildPlan:
    """All that the process which builds has to know."""
    model = {"model": build_input.model.name}
    vectors = whole_files(build_input.embeddings, model)
    origin = Origin(
        build_input.embeddings.uuid, build_input.embeddings.snapshot_id, sequence_number(build_input.embeddings)
    )
    usable = _usable(build_input, kept)
    since = None if usable is None else kept_manifest(usable)
    new = vectors if since is None else whole_files(build_input.embeddings, model, after=since.origin.sequence)
    vector_plan = plan_files(lake, build_input.embeddings)
    return BuildPlan(
        shelf=shelf,
        spec=build_input.table.spec,
        cut=build_input.cut,
        model=build_input.model,
        origin=origin,
        rows=Files(plan_files(lake, build_input.table), tuple(files_at(build_input.table, build_input.snapshot_id))),
        vectors=Files(vector_plan, tuple(new)),
        older=Files(vector_plan, tuple(file for file in vectors if file not in new)),
        refused=Files(plan_files(lake, build_input.refused), tuple(whole_files(build_input.refused, model))),
        kept=usable if since is not None else None,
        index=index,
        vss=vss,
        described=index_description(build_input.table.spec, build_input, index, vss=vss),
    )


def _usable(build_input: BuildInput, place: Path) -> Path | None:
    """What an earlier build kept, if the table of vectors has only been added to and compacted since."""
    folder = newest(place)
    kept = None if folder is None else kept_manifest(folder)
    if kept is None or kept.model != build_input.model or kept.origin.embeddings != build_input.embeddings.uuid:
        return None
    for snapshot in build_input.embeddings.snapshots():
        if snapshot.snapshot_id == kept.origin.snapshot_id:
            return folder
        if snapshot.operation not in ("append", "replace"):
            return None
    return None
