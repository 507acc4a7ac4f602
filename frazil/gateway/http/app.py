"""Application: the routes of all resources in one list."""

from __future__ import annotations

from starlette.routing import Router
from starlette.types import ASGIApp

from frazil.gateway.gateway import Gateway
from frazil.gateway.http.bodies import BodyReader
from frazil.gateway.http.middleware import Guard, no_such_route
from frazil.gateway.http.openapi import description_route
from frazil.gateway.http.routes import (
    artifacts,
    builds,
    dead_letters,
    embeddings,
    events,
    history,
    jobs,
    loads,
    maintenance,
    profiles,
    query,
    search,
    status,
    tables,
    tokens,
    trials,
    visibility,
)

RESOURCES = (
    query,
    search,
    events,
    tables,
    history,
    maintenance,
    loads,
    embeddings,
    artifacts,
    profiles,
    builds,
    trials,
    dead_letters,
    jobs,
    tokens,
    visibility,
    status,
)


def create_app(gateway: Gateway, *, bodies: BodyReader | None = None) -> ASGIApp:
    """The ASGI application of a started gateway."""
    routes = [route for resource in RESOURCES for route in resource.routes(gateway)]
    routes.append(description_route(routes))
    router = Router(routes, redirect_slashes=False, default=no_such_route)
    return Guard(router, gateway, gateway.access, bodies or BodyReader())
