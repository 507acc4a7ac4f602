"""Faiss, imported in one place: its type stubs lack half of what is called here."""

from __future__ import annotations

from typing import Any

import faiss as _faiss

faiss: Any = _faiss
VERSION: str = _faiss.__version__
