"""Query models: the models of the artifacts, opened to embed queries, with a short timeout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from frazil.embedding import OWN, OWN_VERSION, Model, ModelSettings, Vectors, find_model_spec, open_model
from frazil.errors import InvalidInput, Unavailable
from frazil.serving.artifacts import ArtifactModel as BuiltModel

# Somebody waits for the answer: a provider that does not come back soon is one that does not come back.
_PATIENCE_SECONDS = 5.0
_RETRIES = 1


class OwnVectors:
    """The model of vectors that users bring: it is known how long they are, and no text becomes one."""

    name = OWN
    version = OWN_VERSION

    def __init__(self, dims: int) -> None:
        self.dims = dims

    def embed(self, texts: Sequence[str]) -> Vectors:
        raise InvalidInput(
            "this table is searched by vectors that its users bring: there is no model for a text",
            code="own_vectors",
            hint='give `vector` beside the text, or search with mode "text"',
        )


class QueryModels:
    """The models of this gateway's settings. Opening one may take a second; methods block."""

    def __init__(self, models: Mapping[str, ModelSettings]) -> None:
        self._models = models

    def open(self, name: str) -> Model:
        """The model of this name; `Misconfigured` says what is missing."""
        spec = find_model_spec(name, self._models)
        settings = spec.settings.model_copy(
            update={
                "timeout_seconds": min(spec.settings.timeout_seconds, _PATIENCE_SECONDS),
                "retries": min(spec.settings.retries, _RETRIES),
            }
        )
        return open_model(replace(spec, settings=settings))

    def of_artifact(self, built: BuiltModel | None) -> Model | None:
        """The very model that an artifact was built with: another version would give vectors of another space."""
        if built is None:
            return None
        if built.name == OWN:
            return OwnVectors(built.dims)
        model = self.open(built.name)
        if (model.version, model.dims) != (built.version, built.dims):
            raise Unavailable(
                f"the artifact was built with {built.name} of version {built.version} ({built.dims} numbers), "
                f"and here it is {model.version} ({model.dims} numbers)",
                code="artifact_other_model",
                hint="give this gateway the same model, or embed and build the table again",
                retry_after_seconds=30.0,
            )
        return model
