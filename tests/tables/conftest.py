"""Tables are also tested through a gateway that reads and writes them."""

from __future__ import annotations

from tests.gateway.http.conftest import gateway, memory_bus

__all__ = ["gateway", "memory_bus"]
