"""Commits: staged batches audited, then published exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.lake.commit.fold_audit import audit_fold as audit_fold
    from frazil.lake.commit.publish import Outcome as Outcome
    from frazil.lake.commit.publish import audit as audit
    from frazil.lake.commit.publish import make_durable as make_durable
    from frazil.lake.commit.publish import publish_stage as publish_stage
    from frazil.lake.commit.rewrite_audit import RewriteAudit as RewriteAudit
    from frazil.lake.commit.rewrite_audit import audit_rewrite as audit_rewrite
    from frazil.lake.commit.rewrite_audit import rewrites as rewrites

__getattr__, __all__ = lazy_door(__name__)
