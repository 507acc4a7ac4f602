"""Query: from a caller's SQL and the freshness it states to an answer that names what it was read from."""

from frazil.gateway.query.ask import FORMATS, Ask, parse_ask
from frazil.gateway.query.history import History
from frazil.gateway.query.service import Answer, Queries

__all__ = ["FORMATS", "Answer", "Ask", "History", "Queries", "parse_ask"]
