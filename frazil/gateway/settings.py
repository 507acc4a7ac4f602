"""Settings of the gateway.

They are declared one layer down, with the composition: the gateway is the top layer, which settings cannot see.
"""

from __future__ import annotations

from frazil.settings import IngestSettings, ServerSettings

__all__ = ["IngestSettings", "ServerSettings"]
