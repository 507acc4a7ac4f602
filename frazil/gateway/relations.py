"""Relations: the cut of a table as SQL reads it, with what the grant of a caller lets it see."""

from __future__ import annotations

from frazil.access import ReadGrant
from frazil.serving.sql import Relation, TailRows
from frazil.serving.sql.worker import EntityOverlay
from frazil.tables import HistoryOverlay, TableCut


def relation_of(cut: TableCut, view: tuple[str, str], grant: ReadGrant | None = None) -> Relation:
    """The relation that a statement reads as `view`, a schema and a name. Without a grant it has every row as it is:
    for the gateway's own reads, never for those of a caller."""
    overlay, tail = cut.overlay, cut.tail
    if overlay is not None and tail is not None and tail.end <= tail.start:
        tail = None
    allowed = grant or ReadGrant()
    return Relation(
        schema=view[0],
        name=view[1],
        columns=cut.columns,
        metadata=cut.metadata,
        snapshot_id=cut.snapshot_id if cut.pinned else None,
        tail=None if tail is None else TailRows(tail.key, tail.start, tail.end, tail.rows_from),
        where=allowed.where,
        masks=allowed.masks,
        hash_domains=allowed.hash_domains,
        folding=None if overlay is None else _folding(overlay),
    )


def _folding(overlay: HistoryOverlay) -> EntityOverlay:
    history = overlay.history
    return EntityOverlay(
        key=history.table.spec.key,
        base_columns=overlay.base_columns,
        history=history.metadata if overlay.has_committed else None,
        history_snapshot_id=history.snapshot_id if history.pinned else None,
        start=overlay.start,
    )
