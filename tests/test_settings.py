from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from frazil.errors import Misconfigured
from frazil.settings import Settings, load, reference


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loaded(text: str = "", environment: dict[str, str] | None = None, **overrides: object) -> Settings:
    if text:
        Path("frazil.toml").write_text(text)
    flags = {name.replace("__", "."): value for name, value in overrides.items()}
    return load(environment=environment or {}, overrides=flags)


def refused(text: str = "", environment: dict[str, str] | None = None, **overrides: object) -> Misconfigured:
    with pytest.raises(Misconfigured) as caught:
        loaded(text, environment, **overrides)
    return caught.value


def test_defaults_work_without_any_file(tmp_path: Path) -> None:
    settings = loaded()
    assert settings.data_dir == tmp_path / "frazil-data"
    assert settings.address == "http://127.0.0.1:7373"
    assert settings.warehouse_url == f"file://{tmp_path}/frazil-data/warehouse"
    assert settings.catalog_url == f"sqlite:///{tmp_path}/frazil-data/catalog.db"
    assert settings.catalog_file == tmp_path / "frazil-data" / "catalog.db"
    assert settings.bus.url is None


def test_every_setting_has_one_sentence_of_help() -> None:
    assert [name for name, _, _, words in reference() if not words.endswith((".", "…"))] == []


def test_flags_over_environment_over_file_over_defaults() -> None:
    text = "[server]\nport = 1001\n[ingest]\nmax_events = 5\n[pipeline]\nparallel_tables = 2\n"
    settings = loaded(text, {"FRAZIL_SERVER__PORT": "1002", "FRAZIL_INGEST__MAX_EVENTS": "6"}, server__port=1003)
    assert settings.server.port == 1003
    assert settings.ingest.max_events == 6
    assert settings.pipeline.parallel_tables == 2
    assert settings.pipeline.max_batch_rows == 500_000


def test_sizes_may_be_written_with_units() -> None:
    assert loaded('[ingest]\nmax_body_bytes = "2 MiB"').ingest.max_body_bytes == 2 << 20


def test_spark_settings_keep_their_dotted_names() -> None:
    settings = loaded('[pipeline.spark_conf]\nspark.ui.enabled = true\n"spark.executor.cores" = 2\n')
    assert settings.pipeline.spark_conf == {"spark.ui.enabled": "true", "spark.executor.cores": "2"}
    settings = loaded(environment={"FRAZIL_PIPELINE__SPARK_CONF": '{"spark.a": "b"}'})
    assert settings.pipeline.spark_conf == {"spark.a": "b"}


@pytest.mark.parametrize(
    ("text", "key", "closest"),
    [
        ("[server]\nprot = 1", "server.prot", "server.port"),
        ("data_dri = '/x'", "data_dri", "data_dir"),
        ("[pipline]\nparallel_tables = 1", "pipline.parallel_tables", "pipeline.parallel_tables"),
    ],
)
def test_an_unknown_key_is_named_with_its_file_and_the_closest(text: str, key: str, closest: str) -> None:
    error = refused(text)
    assert error.code == "unknown_setting"
    assert repr(key) in error.message
    assert str(Path("frazil.toml").absolute()) in error.message
    assert repr(closest) in error.hint


def test_an_unknown_section_is_refused_even_when_empty() -> None:
    assert refused("[sever]\n").code == "unknown_setting"


@pytest.mark.parametrize(
    ("variable", "closest"),
    [
        ("FRAZIL_SERVER__PROT", "FRAZIL_SERVER__PORT"),
        ("FRAZIL_SERVER_PORT", "FRAZIL_SERVER__PORT"),
        ("FRAZIL_DATADIR", "FRAZIL_DATA_DIR"),
    ],
)
def test_a_misspelt_variable_is_refused(variable: str, closest: str) -> None:
    error = refused(environment={variable: "1"})
    assert variable in error.message
    assert closest in error.hint


def test_other_variables_with_our_prefix_are_left_alone() -> None:
    loaded(environment={"FRAZIL_URL": "x", "FRAZIL_TOKEN": "y", "FRAZIL_CRASH_AT": "z", "FRAZIL_RUN_ID": "r"})


def test_a_wrong_value_says_field_places_and_what_to_write() -> None:
    error = refused("[server]\nport = 99999")
    assert "server.port is 99999" in error.message
    assert "FRAZIL_SERVER__PORT" in error.message
    assert str(Path("frazil.toml").absolute()) in error.message
    assert "7373" in error.hint
    assert "FRAZIL_SERVER__PORT" in refused(environment={"FRAZIL_SERVER__PORT": "abc"}).hint


def test_a_file_that_is_not_toml() -> None:
    error = refused("[server\nport = 1")
    assert error.code == "config_syntax"
    assert "line 1" in error.message


def test_a_named_file_must_exist() -> None:
    with pytest.raises(Misconfigured, match=r"other\.toml"):
        load(Path("other.toml"), environment={})
    with pytest.raises(Misconfigured, match=r"another\.toml"):
        load(environment={"FRAZIL_CONFIG": "another.toml"})


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ("[bus]\npassword = 'hunter2'", "FRAZIL_BUS__PASSWORD"),
        ("[warehouse]\nsecret_access_key = 'hunter2'", "FRAZIL_WAREHOUSE__SECRET_ACCESS_KEY"),
        ("[catalog]\nurl = 'postgresql://me:hunter2@host/db'", "FRAZIL_CATALOG__PASSWORD"),
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(text: str, variable: str) -> None:
    error = refused(text)
    assert error.code == "secret_in_file"
    assert variable in error.hint
    assert "hunter2" not in error.message + error.hint


def test_secrets_from_the_environment_do_not_show() -> None:
    settings = loaded(environment={"FRAZIL_BUS__USER": "me", "FRAZIL_BUS__PASSWORD": "hunter2"})
    assert settings.bus.credentials() == {"user": "me", "password": "hunter2"}
    assert "hunter2" not in repr(settings)


def test_secrets_from_files_of_mode_0600() -> None:
    secret, pair = Path("secret"), Path("pair")
    secret.write_text("hunter2\n")
    secret.chmod(0o600)
    pair.write_text("[default]\naws_access_key_id = K\naws_secret_access_key = S\n")
    pair.chmod(0o600)
    settings = loaded("[bus]\npassword_file = 'secret'\n[warehouse]\ncredentials_file = 'pair'\n")
    assert settings.bus.credentials() == {"password": "hunter2"}
    assert settings.warehouse.access_key_id == "K"
    assert settings.warehouse.secret_access_key is not None
    assert settings.warehouse.secret_access_key.get_secret_value() == "S"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o610, 0o604])
def test_a_secret_file_that_others_read_is_refused(mode: int) -> None:
    secret = Path("secret")
    secret.write_text("hunter2\n")
    secret.chmod(mode)
    error = refused("[bus]\npassword_file = 'secret'")
    assert error.code == "secret_file_mode"
    assert "chmod 600 secret" in error.hint


@pytest.mark.parametrize("content", ["", "two\nlines\n", "\n"])
def test_a_secret_file_has_one_line(content: str) -> None:
    Path("secret").write_text(content)
    Path("secret").chmod(0o600)
    assert refused("[bus]\npassword_file = 'secret'").code == "bad_secret_file"


def test_a_remote_address_needs_a_word_of_consent() -> None:
    assert refused("[server]\nhost = '0.0.0.0'").code == "remote_refused"
    assert refused("[server]\nhost = 'example'").code == "remote_refused"
    assert loaded("[server]\nhost = '0.0.0.0'\nallow_remote = true").address == "http://127.0.0.1:7373"
    assert loaded("[server]\nhost = '::1'").address == "http://[::1]:7373"


@pytest.mark.parametrize(
    "module", ["frazil", "frazil.client", "frazil.settings", "frazil.cli", "frazil.runtime.supervisor"]
)
def test_the_way_to_the_first_event_imports_nothing_heavy(module: str) -> None:
    """`frazil up` has three seconds until it accepts events; importing these libraries takes most of them."""
    heavy = "pyarrow pyiceberg pyspark pandas sqlalchemy starlette numpy".split()
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("section", "url"),
    [
        ("bus", "postgresql://db.example/bus?passfile=/tmp/p"),
        ("bus", "postgresql://db.example/bus?sslmode=require&service=x"),
        ("bus", "postgresql://db.example/bus?options=-cfsync%3Doff"),
        ("catalog", "postgresql://db.example/lake?socketFactory=org.example.Evil"),
        ("catalog", "postgresql://db.example/lake?loggerFile=/tmp/x"),
    ],
)
def test_addresses_of_databases_have_no_options(section: str, url: str) -> None:
    error = refused(f"[{section}]\nurl = '{url}'")
    assert error.code == "wrong_setting" and "has no options" in error.message


def test_an_address_of_a_bus_may_say_how_it_is_encrypted() -> None:
    assert loaded("[bus]\nurl = 'postgresql://db.example/bus?sslmode=verify-full'").bus.url


@pytest.mark.parametrize(
    "line",
    [
        "spark.hadoop.fs.s3a.secret.key = 'hunter2'",
        "'spark.authenticate.secret' = 'hunter2'",
        "spark.hadoop.javax.jdo.option.ConnectionPassword = 'hunter2'",
        "spark.sql.catalog.other.uri = 'jdbc:postgresql://h/db?password=hunter2'",
        "spark.executorEnv.URL = 'http://me:hunter2@h/'",
    ],
)
def test_a_secret_among_sparks_settings_is_refused_in_the_file(line: str) -> None:
    error = refused(f"[pipeline.spark_conf]\n{line}\n")
    assert error.code == "secret_in_file" and "spark." in error.message and "spark_secrets_file" in error.hint
    assert "hunter2" not in str(error.body())


def test_secrets_of_spark_come_from_the_environment_or_a_private_file() -> None:
    secrets = Path("spark-secrets")
    secrets.touch(0o600)
    lines = ("# of the cluster", "spark.authenticate.secret = hunter2 and more", "", "spark.ssl.keyPassword hunter3")
    secrets.write_text("\n".join(lines))
    text = "[pipeline]\nspark_secrets_file = 'spark-secrets'\n[pipeline.spark_conf]\nspark.ui.enabled = false\n"
    settings = loaded(text)
    expected = {"spark.ui.enabled": "false", "spark.authenticate.secret": "hunter2 and more"}
    assert settings.pipeline.spark_conf == {**expected, "spark.ssl.keyPassword": "hunter3"}
    assert "hunter" not in repr(settings) and "hunter" not in str(settings)
    given = loaded(environment={"FRAZIL_PIPELINE__SPARK_CONF": '{"spark.authenticate.secret": "hunter2"}'})
    assert given.pipeline.spark_conf["spark.authenticate.secret"] == "hunter2", "the environment comes first"
    secrets.write_text("spark.authenticate.secret = x\nhunter2\n")
    error = refused(text)
    assert error.code == "bad_secret_file" and "line 2" in error.message and "hunter2" not in str(error.body())
