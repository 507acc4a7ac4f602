"""A DSN is read as libpq reads it, and its password shows up nowhere."""

from __future__ import annotations

import logging
import pickle
import traceback
from pathlib import Path

import pytest
from pydantic import ValidationError

from frazil.errors import Denied, FrazilError, Misconfigured
from frazil.pipeline import SourceSettings
from frazil.pipeline.sources.postgres.connection import Timeouts, connect, rows
from frazil.pipeline.sources.postgres.dsn import NEUTRAL, parse_dsn
from frazil.pipeline.sources.postgres.source_settings import read_dsn
from frazil.pipeline.sources.postgres.source_tables import select
from tests.contract.servers import PostgresServer
from tests.pipeline.sources.postgres.conftest import dsn_of, psql

NASTY = "p@ss/w:o?r#d'%\\ ü"
IN_URL = "p%40ss%2Fw%3Ao%3Fr%23d%27%25%5C%20%C3%BC"
IN_WORDS = "'p@ss/w:o?r#d\\'%\\\\ ü'"


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://me:{IN_URL}@db.example:5433/shop?sslmode=require",
        f"postgres://me:{IN_URL}@db.example:5433/shop?sslmode=require",
        f"postgres://db.example:5433/shop?sslmode=require&user=me&password={IN_URL}",
        f"host=db.example port=5433 user = me password={IN_WORDS} dbname='shop' sslmode=require",
    ],
)
def test_forms_of_a_dsn(text: str) -> None:
    dsn = parse_dsn(text, "X")
    for part in ("host='db.example'", "port='5433'", "user='me'", "dbname='shop'", "sslmode='require'"):
        assert part in dsn.conninfo()
    assert f"password={IN_WORDS}" in dsn.conninfo()
    assert dsn == parse_dsn(dsn.conninfo(), "Y")
    assert repr(dsn) == str(dsn) == f"{dsn}" == "Dsn(me@db.example:5433/shop)"


@pytest.mark.parametrize(
    "form", [NASTY, IN_URL, IN_URL.lower(), IN_WORDS[1:-1], "p%40ss/w%3Ao%3Fr%23d%27%25%5C%20%C3%BC"]
)
def test_the_password_is_redacted_in_every_form(form: str) -> None:
    dsn = parse_dsn(f"postgresql://me:{IN_URL}@h/db", "X")
    for text in (f"bad password {form} here", f"postgresql://me:{form}@h/db", f"password={form} host=h", form):
        redacted = dsn.redacted(text)
        assert form not in redacted and "***" in redacted
        assert "w:o" not in redacted.replace(form, "") and "%3Ao" not in redacted


def test_redaction_knows_where_passwords_stand() -> None:
    dsn = parse_dsn("host=h user=me", "X")
    assert dsn.redacted("password=hunter2 host=h") == "password=*** host=h"
    assert dsn.redacted("at postgres://u:hunter2@h/db") == "at postgres://u:***@h/db"
    assert dsn.redacted("sslpassword = 'a b' x") == "sslpassword = *** x"


def test_a_pickle_goes_to_tasks_without_showing_the_password() -> None:
    dsn = parse_dsn("postgresql://me:hunter2secret@h/db", "X")
    packed = pickle.dumps(dsn)
    assert b"hunter2secret" not in packed and pickle.loads(packed) == dsn  # noqa: S301
    assert hash(pickle.loads(packed)) == hash(dsn)  # noqa: S301


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "hunter2",
        "postgresql://me:hunt%er2@h/db",
        "postgresql://me:hunter@2@h/db",
        "postgresql://me:hunter/2@h/db",
        "postgresql://me:hunter2@h:port/db",
        "postgresql://h/db?password",
        "mysql://me:hunter2@h/db",
        "host=h password='hunter2",
        "host=h password=hunter 2",
        "host=h hunter2",
    ],
)
def test_a_broken_dsn_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        parse_dsn(text, "SHOP_DSN")
    assert caught.value.code == "bad_dsn" and "SHOP_DSN" in caught.value.message
    assert "hunt" not in "".join(traceback.format_exception(caught.value))


def test_several_hosts_and_ipv6() -> None:
    assert "host='a,b' port='1,2'" in parse_dsn("postgresql://a:1,b:2/db", "X").conninfo()
    assert "host='::1'" in parse_dsn("postgresql://[::1]/db", "X").conninfo()


def test_the_dsn_of_a_source_comes_from_the_environment_or_a_private_file(tmp_path: Path) -> None:
    assert "h" in read_dsn("shop", SourceSettings(dsn_env="SHOP"), {"SHOP": "host=h"}).place
    file = tmp_path / "dsn"
    file.write_text("postgresql://me:x@filehost/db\n")
    settings = SourceSettings(dsn_file=file)
    for mode in (0o644, 0o640, 0o602):
        file.chmod(mode)
        with pytest.raises(Misconfigured, match=f"mode {mode:04o}") as caught:
            read_dsn("shop", settings)
        assert caught.value.code == "secret_file_mode"
    file.chmod(0o400)
    assert read_dsn("shop", settings).place == "me@filehost/db"


def test_a_source_without_its_dsn_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="does not say where") as caught:
        read_dsn("shop", SourceSettings(), {})
    assert "[sources.shop]" in caught.value.hint
    with pytest.raises(Misconfigured, match=r"SHOP.*is not set"):
        read_dsn("shop", SourceSettings(dsn_env="SHOP"), {})
    with pytest.raises(Misconfigured, match="cannot be read"):
        read_dsn("shop", SourceSettings(dsn_file=tmp_path / "none"), {})
    with pytest.raises(ValidationError, match="not both"):
        SourceSettings(dsn_env="A", dsn_file=tmp_path)


def test_a_dsn_in_the_settings_is_refused_without_being_shown() -> None:
    secret = "postgresql://me:hunter2@h/db"
    for field in ("dsn_env", "dsn_file"):
        with pytest.raises(Misconfigured) as caught:
            SourceSettings.model_validate({field: secret})
        assert caught.value.code == "secret_in_file"
        assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_settings_in_the_words_of_the_file() -> None:
    settings = SourceSettings.model_validate({"dsn_env": "A", "tables": "in*", "schema": "shop", "exclude": ["x"]})
    assert (settings.tables, settings.in_schema, settings.exclude) == (("in*",), "shop", ("x",))


def test_a_wrong_password_and_a_dead_server_do_not_show_it(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = dsn_of(server, password="hunter2secret")
    with pytest.raises(Denied) as denied:
        select(wrong, "public", ["*"])
    assert denied.value.code == "postgres_denied" and not denied.value.transient
    dead = parse_dsn("postgresql://me:hunter2secret@127.0.0.1:1/db", "X")
    with pytest.raises(FrazilError) as unreachable:
        select(dead, "public", ["*"])
    assert unreachable.value.code == "postgres_unavailable" and unreachable.value.transient
    for caught in (denied.value, unreachable.value):
        assert "hunter2secret" not in "".join(traceback.format_exception(caught)) + caplog.text + str(caught.body())


def test_a_nasty_password_opens_the_door(server: PostgresServer) -> None:
    psql(server, f"CREATE ROLE nasty LOGIN PASSWORD '{NASTY.replace(chr(39), chr(39) * 2)}'")
    for text in (
        f"postgresql://nasty:{IN_URL}@127.0.0.1:{server.port}/postgres",
        f"host=127.0.0.1 port={server.port} dbname=postgres user=nasty password={IN_WORDS}",
    ):
        assert select(parse_dsn(text, "X"), "information_schema", ["tables"]).relations


REFUSED = (
    "service=shop passfile=/tmp/p sslrootcert=/tmp/r sslkey=/tmp/k sslcert=/tmp/c options=-csearch_path%3Dx".split()
)
REFUSED += "hostaddr=10.0.0.1 sslcrl=/tmp/x requirepeer=root servicefile=/tmp/s sslkeylogfile=/tmp/l".split()


@pytest.mark.parametrize("option", [*REFUSED, "gsslib=gssapi", "replication=database"])
def test_options_that_read_files_or_change_the_session_are_refused_with_the_reason(option: str) -> None:
    key = option.partition("=")[0]
    for text in (f"postgresql://me:hunter2@h/db?{option}", f"host=h password=hunter2 {option.replace('%3D', '=')}"):
        with pytest.raises(Misconfigured, match=f"the option {key} ") as caught:
            parse_dsn(text, "SHOP_DSN")
        assert caught.value.code == "dsn_option" and caught.value.hint.startswith(f"{key}: ")
        assert "hunter2" not in str(caught.value.body()) and "/tmp" not in str(caught.value.body())


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me@h/db?%73ervice=x",
        "postgresql://me@h/db?Service=x",
        "postgresql://me@h/db?host=a&host=b",
        "postgresql://me@h/db?host=b",
        "host=a host=b",
        "host=h user=a user=b",
        "host=h hunter=2",
        "postgresql://me@h/db?hunter=2",
        "postgresql://me@%2Fvar%2Frun%2Fpostgresql/db",
        "postgresql:///db?host=/tmp",
        "host=/tmp dbname=db",
        "host=a,/tmp",
        "host=@abstract",
    ],
)
def test_odd_ways_to_the_same_are_refused_and_unknown_words_are_not_shown(text: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        parse_dsn(text, "SHOP_DSN")
    assert caught.value.code in ("dsn_option", "bad_dsn") and "hunter" not in str(caught.value.body())


def test_an_authority_of_ones_own_is_a_setting(tmp_path: Path) -> None:
    text = "postgresql://me@h/db?sslmode=verify-full"
    own = read_dsn("shop", SourceSettings(dsn_env="SHOP", ca_file=tmp_path / "ca.pem"), {"SHOP": text})
    assert f"sslrootcert='{tmp_path}/ca.pem'" in own.conninfo()
    assert "sslrootcert='system'" in parse_dsn(f"{text}&sslrootcert=system", "X").conninfo()


def test_the_environment_of_the_process_does_not_change_the_connection(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = tmp_path / "services"
    service.write_text("[trap]\nhost=127.0.0.1\nport=1\n")
    trap = {
        "PGSERVICE": "trap",
        "PGSERVICEFILE": str(service),
        "PGOPTIONS": "-c search_path=trap -c default_transaction_read_only=off",
        "PGHOST": "/tmp",
        "PGHOSTADDR": "127.0.0.1",
        "PGPASSFILE": str(tmp_path / "none"),
        "PGSSLROOTCERT": str(tmp_path / "none"),
        "PGSSLKEY": str(tmp_path / "none"),
        "PGREQUIREPEER": "nobody",
    }
    for name, value in trap.items():
        monkeypatch.setenv(name, value)
    with connect(dsn_of(server), Timeouts()) as connection, connection.cursor() as cursor:
        assert rows(cursor, "SELECT current_setting('search_path') AS path")[0]["path"] == '"$user", public'
    assert parse_dsn("dbname=db", "X").conninfo(**NEUTRAL).startswith("options='' "), "said to be empty"
    assert "host='localhost'" in parse_dsn("dbname=db", "X").conninfo(**NEUTRAL)
