"""The routes, all in one list."""

from __future__ import annotations

from starlette.routing import Route, Router
from starlette.types import ASGIApp

from frazil.gateway.gateway import Gateway
from frazil.gateway.http.bodies import BodyReader
from frazil.gateway.http.middleware import Guard, no_such_route
from frazil.gateway.http.openapi import ApiDescription
from frazil.gateway.http.routes.artifacts import TableArtifacts
from frazil.gateway.http.routes.builds import Builds
from frazil.gateway.http.routes.dead_letters import TableDeadLetters
from frazil.gateway.http.routes.embeddings import TableEmbeddings
from frazil.gateway.http.routes.events import Events
from frazil.gateway.http.routes.history import TableHistory
from frazil.gateway.http.routes.jobs import Jobs
from frazil.gateway.http.routes.loads import Loads
from frazil.gateway.http.routes.maintenance import Maintenance
from frazil.gateway.http.routes.profiles import SearchProfiles
from frazil.gateway.http.routes.query import Query
from frazil.gateway.http.routes.search import Search
from frazil.gateway.http.routes.status import Status
from frazil.gateway.http.routes.tables import Tables
from frazil.gateway.http.routes.tokens import Tokens
from frazil.gateway.http.routes.trials import TableTrials
from frazil.gateway.http.routes.visibility import Visibility


def create_app(gateway: Gateway, *, bodies: BodyReader | None = None) -> ASGIApp:
    """The ASGI application of a started gateway."""
    bodies = bodies or BodyReader()
    status = Status(gateway)
    tables = Tables(gateway, bodies)
    events = Events(gateway, bodies)
    visibility = Visibility(gateway)
    tokens = Tokens(gateway, gateway.access, bodies, check_filter=gateway.check_filter)
    query = Query(gateway, bodies)
    search = Search(gateway, bodies)
    history = TableHistory(gateway)
    maintenance = Maintenance(gateway, bodies)
    jobs = Jobs(gateway)
    loads = Loads(gateway, bodies)
    embeddings = TableEmbeddings(gateway, bodies)
    artifacts = TableArtifacts(gateway)
    profiles = SearchProfiles(gateway, bodies)
    builds = Builds(gateway, bodies)
    trials = TableTrials(gateway, bodies)
    dead_letters = TableDeadLetters(gateway, bodies)
    routes = [
        Route("/v1/query", query.post, methods=["POST"]),
        Route("/v1/search", search.post, methods=["POST"]),
        Route("/v1/tables/{table}/events", events.post, methods=["POST"]),
        Route("/v1/tables", tables.declare, methods=["POST"]),
        Route("/v1/tables", tables.list, methods=["GET"]),
        Route("/v1/tables/{table}", tables.describe, methods=["GET"]),
        Route("/v1/tables/{table}", tables.alter, methods=["PATCH"]),
        Route("/v1/tables/{table}", tables.drop, methods=["DELETE"]),
        Route("/v1/tables/{table}/undrop", tables.undrop, methods=["POST"]),
        Route("/v1/tables/{table}/repair", tables.repair, methods=["POST"]),
        Route("/v1/tables/{table}/history", history.snapshots, methods=["GET"]),
        Route("/v1/tables/{table}/rows/{id:path}/history", history.row, methods=["GET"]),
        Route("/v1/tables/{table}/rows", history.of_key, methods=["GET"]),
        Route("/v1/tables/{table}/changes", history.changes, methods=["GET"]),
        Route("/v1/tables/{table}/export-hint", history.export_hint, methods=["POST"]),
        Route("/v1/tables/{table}/health", maintenance.health, methods=["GET"]),
        Route("/v1/tables/{table}/maintenance", maintenance.ask, methods=["POST"]),
        Route("/v1/loads/csv", loads.csv, methods=["POST"]),
        Route("/v1/loads/postgres", loads.postgres, methods=["POST"]),
        Route("/v1/tables/{table}/loads", loads.list, methods=["GET"]),
        Route("/v1/tables/{table}/loads", loads.upload, methods=["POST"]),
        Route("/v1/tables/{table}/embed", embeddings.ask, methods=["POST"]),
        Route("/v1/tables/{table}/embeddings", embeddings.list, methods=["GET"]),
        Route("/v1/tables/{table}/embeddings/{model}", embeddings.delete, methods=["DELETE"]),
        Route("/v1/tables/{table}/artifacts", artifacts.list, methods=["GET"]),
        Route("/v1/tables/{table}/artifacts/rollback", artifacts.rollback, methods=["POST"]),
        Route("/v1/tables/{table}/artifacts/{generation}", artifacts.show, methods=["GET"]),
        Route("/v1/tables/{table}/artifacts/{generation}/verify", artifacts.verify, methods=["POST"]),
        Route("/v1/tables/{table}/artifacts/{generation}/promote", artifacts.promote, methods=["POST"]),
        Route("/v1/profiles", profiles.list, methods=["GET"]),
        Route("/v1/profiles/{name}", profiles.show, methods=["GET"]),
        Route("/v1/profiles/{name}", profiles.put, methods=["PUT"]),
        Route("/v1/profiles/{name}", profiles.delete, methods=["DELETE"]),
        Route("/v1/tables/{table}/build", builds.ask, methods=["POST"]),
        Route("/v1/tables/{table}/trials", trials.ask, methods=["POST"]),
        Route("/v1/tables/{table}/trials", trials.list, methods=["GET"]),
        Route("/v1/tables/{table}/trials/best", trials.best, methods=["POST"]),
        Route("/v1/tables/{table}/trials/best", trials.forget, methods=["DELETE"]),
        Route("/v1/tables/{table}/dead-letters", dead_letters.list, methods=["GET"]),
        Route("/v1/tables/{table}/dead-letters/resend", dead_letters.resend, methods=["POST"]),
        Route("/v1/tables/{table}/dead-letters/discard", dead_letters.discard, methods=["POST"]),
        Route("/v1/jobs", jobs.list, methods=["GET"]),
        Route("/v1/jobs/{id}", jobs.show, methods=["GET"]),
        Route("/v1/health/tables", maintenance.health_of_all, methods=["GET"]),
        Route("/v1/tokens", tokens.create, methods=["POST"]),
        Route("/v1/tokens", tokens.list, methods=["GET"]),
        Route("/v1/tokens/{id}", tokens.show, methods=["GET"]),
        Route("/v1/tokens/{id}", tokens.revoke, methods=["DELETE"]),
        Route("/v1/tokens/{id}/rotate", tokens.rotate, methods=["POST"]),
        Route("/v1/visibility", visibility.get, methods=["GET"]),
        Route("/v1/health", status.health, methods=["GET"]),
        Route("/v1/status", status.status, methods=["GET"]),
        Route("/v1/journal", status.journal, methods=["GET"]),
        Route("/metrics", status.metrics, methods=["GET"]),
        Route("/", status.links, methods=["GET"]),
    ]
    routes.append(Route("/v1/openapi.json", ApiDescription(routes).get, methods=["GET"]))
    return Guard(Router(routes, redirect_slashes=False, default=no_such_route), gateway, gateway.access)
