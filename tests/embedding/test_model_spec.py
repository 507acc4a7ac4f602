"""Which model a name means, what settings may say, and where a key is read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from frazil.embedding import ModelSettings, open_model
from frazil.embedding.model_spec import find_model_spec
from frazil.errors import Misconfigured
from frazil.settings import load

KEY = "sk-0123456789-secret"
FAR: dict[str, Any] = {"provider": "openai", "url": "https://models.example/v1", "model": "m", "dims": 8}


def test_built_in_names_need_no_settings_and_give_way_to_them() -> None:
    assert find_model_spec("wordllama").settings.provider == "wordllama"
    assert find_model_spec("minilm").settings.provider == "onnx"
    mine = ModelSettings(provider="onnx", folder=Path("/models/mine"))
    assert find_model_spec("minilm", {"minilm": mine}).settings == mine
    near = ModelSettings(provider="onnx", folder=Path("near"))
    assert find_model_spec("near", {"near": near}).settings.folder == Path.cwd() / "near"


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(Misconfigured) as caught:
        open_model("wordlama")
    assert caught.value.code == "unknown_model" and "'wordllama'" in caught.value.hint and "minilm" in caught.value.hint


def test_the_key_comes_from_the_environment(tmp_path: Path) -> None:
    models = {"far": ModelSettings(**FAR, key_env="FAR_KEY")}
    spec = find_model_spec("far", models, {"FAR_KEY": f" {KEY}\n"})
    assert spec.key is not None and spec.key.get_secret_value() == KEY
    assert KEY not in repr(spec) and KEY not in str(spec)
    for environment in ({}, {"FAR_KEY": " "}):
        with pytest.raises(Misconfigured, match="FAR_KEY") as caught:
            find_model_spec("far", models, environment)
        assert caught.value.code == "key_missing"


def test_the_key_comes_from_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(KEY + "\n")
    path.chmod(0o600)
    models = {"far": ModelSettings(**FAR, key_file=path)}
    key = find_model_spec("far", models).key
    assert key is not None and key.get_secret_value() == KEY
    path.chmod(0o640)
    _refused(models, "secret_file_mode")
    path.chmod(0o600)
    for content in (b"", b"a\nb\n", b"\xff\xfe", "schl\u00fcssel".encode()):
        path.write_bytes(content)
        _refused(models, "bad_key" if content[:1] == b"s" else "bad_secret_file")
    path.unlink()
    _refused(models, "bad_secret_file")


def _refused(models: dict[str, ModelSettings], code: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        find_model_spec("far", models)
    assert caught.value.code == code and KEY not in str(caught.value.body())


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"url": None}, "url"),
        ({"dims": None}, "dims"),
        ({"model": None}, "model"),
        ({"url": "models.example"}, "address"),
        ({"url": "ftp://models.example"}, "address"),
        ({"url": "http://[::1"}, "address"),
        ({"url": f"https://user:{KEY}@models.example/v1"}, "more than an address"),
        ({"url": f"https://models.example/v1?key={KEY}"}, "more than an address"),
        ({"url": "http://models.example/v1", "key_env": "K"}, "unencrypted"),
        ({"key_env": "K", "key_file": "f"}, "not both"),
        ({"provider": "magic"}, "wordllama"),
        ({"dims": 0}, "greater"),
        ({"batch": 0}, "greater"),
        ({"max_requests_per_second": 0}, "greater"),
        ({"timeout_seconds": 0}, "greater"),
        ({"retries": -1}, "greater"),
        ({"version": "a b"}, "pattern"),
        ({"speed": 1}, "not permitted"),
        ({"api_key": KEY}, "secret"),
        ({"key": KEY}, "secret"),
    ],
)
def test_wrong_settings_are_told_and_show_no_key(tmp_path: Path, changed: dict[str, Any], part: str) -> None:
    words = {name: value for name, value in (FAR | changed).items() if value is not None}
    lines = [f"{name} = {value!r}" for name, value in words.items()]
    config = tmp_path / "frazil.toml"
    config.write_text("[models.far]\n" + "\n".join(lines) + "\n")
    with pytest.raises(Misconfigured) as caught:
        load(config, environment={})
    told = str(caught.value.body())
    assert part in told and KEY not in told


def test_models_are_settings_like_others(tmp_path: Path) -> None:
    config = tmp_path / "frazil.toml"
    config.write_text(
        '[models.far]\nprovider = "openai"\nurl = "http://127.0.0.1:11434/v1/"\nmodel = "nomic"\ndims = 768\n'
        'key_env = "K"\nmax_requests_per_second = 2.5\n[models.near]\nprovider = "onnx"\nfolder = "m"\n'
    )
    found = load(config, environment={}).models
    assert found["far"].url == "http://127.0.0.1:11434/v1" and found["far"].max_requests_per_second == 2.5
    assert found["near"].folder == Path("m") and found["near"].pooling == "mean"
    by_variable = load(None, environment={"FRAZIL_MODELS": '{"near": {"provider": "wordllama"}}'}).models
    assert by_variable["near"].provider == "wordllama"


def test_settings_are_read_without_loading_what_embeds() -> None:
    code = (
        "import sys, frazil.embedding.settings, frazil.embedding\n"
        "assert not {'numpy', 'tokenizers', 'httpx', 'onnxruntime', 'wordllama'} & set(sys.modules)\n"
        "frazil.embedding.chunked\n"
        "assert not {'tokenizers', 'httpx', 'onnxruntime', 'wordllama'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
