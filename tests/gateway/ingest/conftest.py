"""The writers are tested through the gateway they serve, with the same parts."""

from __future__ import annotations

from tests.gateway.http.conftest import bus, gateway, memory_bus, nats_bus, nats_server

__all__ = ["bus", "gateway", "memory_bus", "nats_bus", "nats_server"]
