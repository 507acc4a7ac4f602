"""The HTTP gateway: `Gateway` has everything, `create_app` puts it behind routes, `serve` puts those on a port."""

from frazil.gateway.http.app import create_app
from frazil.gateway.http.gateway import Gateway
from frazil.gateway.http.server import listen, serve

__all__ = ["Gateway", "create_app", "listen", "serve"]
