"""Access: tokens, grants, quotas, rate limits and the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.access.access_control import AccessControl as AccessControl
    from frazil.access.audit import AuditEntry as AuditEntry
    from frazil.access.audit import AuditFields as AuditFields
    from frazil.access.audit import AuditLog as AuditLog
    from frazil.access.audit import audit_entry as audit_entry
    from frazil.access.grants import Grant as Grant
    from frazil.access.grants import ReadGrant as ReadGrant
    from frazil.access.grants import matching as matching
    from frazil.access.grants import parse_grants as parse_grants
    from frazil.access.identity import Forbidden as Forbidden
    from frazil.access.identity import Identity as Identity
    from frazil.access.mask_salt import shared_mask_salt as shared_mask_salt
    from frazil.access.quotas import KINDS as KINDS
    from frazil.access.quotas import Memory as Memory
    from frazil.access.quotas import QuotaPlace as QuotaPlace
    from frazil.access.quotas import Quotas as Quotas
    from frazil.access.rate_limit import RateLimited as RateLimited
    from frazil.access.settings import AccessSettings as AccessSettings
    from frazil.access.token_secret import id_of as id_of
    from frazil.access.token_store import TokenRecord as TokenRecord

__getattr__, __all__ = lazy_door(__name__)
