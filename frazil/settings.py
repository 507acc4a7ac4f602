"""All settings of one process: defaults, then `frazil.toml`, then `FRAZIL_…` variables, then command-line flags.

`load()` reads them once, at the entry point. A key that does not exist, a value that does not fit and a secret in the
wrong place are refused with an error that names the place and the correction.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ByteSize, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError

from frazil.access import AccessSettings
from frazil.bus import BusSettings
from frazil.embedding import ModelSettings
from frazil.errors import Misconfigured
from frazil.gateway import IngestSettings, ServerSettings
from frazil.lake import CatalogSettings, MaintenanceSettings
from frazil.pipeline import MailSettings, PipelineSettings, SourceSettings, WatchSettings, flat_settings, is_secret
from frazil.serving import SearchSettings
from frazil.serving.sql import QuerySettings
from frazil.storage import WarehouseSettings, read_private

__all__ = [
    "AccessSettings",
    "BusSettings",
    "CatalogSettings",
    "IngestSettings",
    "MailSettings",
    "MaintenanceSettings",
    "ModelSettings",
    "PipelineSettings",
    "QuerySettings",
    "SearchSettings",
    "ServerSettings",
    "Settings",
    "SourceSettings",
    "WarehouseSettings",
    "WatchSettings",
    "find_config",
    "load",
]

FILE_NAME = "frazil.toml"
PREFIX = "FRAZIL_"
_NOT_SETTINGS = {
    f"FRAZIL_{name}" for name in "CONFIG URL TOKEN RUN_ID PART SUPERVISOR_PID CRASH_AT PAUSE_AT CRASH_TRACE".split()
}


_OBJECTS = ("pipeline.spark_conf", "sources", "watch", "models")
"""Settings whose keys are the user's own; as variables they are JSON."""


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    data_dir: Path = Field(
        default=Path("./frazil-data"), description="Everything that frazil keeps is in this directory."
    )
    min_free_bytes: ByteSize = Field(
        default=ByteSize(500_000_000),
        description="frazil does not start, take uploads or unpack files with less free disk space than this.",
    )
    drain_seconds: float = Field(
        default=15.0, gt=0, description="How long each part may take to finish its work at a stop."
    )
    server: ServerSettings = Field(default_factory=ServerSettings, description="The HTTP server.")
    ingest: IngestSettings = Field(default_factory=IngestSettings, description="Limits of what producers may send.")
    bus: BusSettings = Field(default_factory=BusSettings, description="The bus.")
    warehouse: WarehouseSettings = Field(default_factory=WarehouseSettings, description="Where table files live.")
    catalog: CatalogSettings = Field(default_factory=CatalogSettings, description="Which tables there are.")
    pipeline: PipelineSettings = Field(default_factory=PipelineSettings, description="The Spark pipeline.")
    maintenance: MaintenanceSettings = Field(
        default_factory=MaintenanceSettings, description="How tables are kept tidy."
    )
    query: QuerySettings = Field(default_factory=QuerySettings, description="The query workers.")
    search: SearchSettings = Field(default_factory=SearchSettings, description="Artifacts and search.")
    access: AccessSettings = Field(default_factory=AccessSettings, description="Tokens, rates and the audit log.")

    sources: dict[str, SourceSettings] = Field(
        default_factory=dict, description="Databases to load from, each below [sources.<name>]."
    )
    watch: dict[str, WatchSettings] = Field(
        default_factory=dict, description="Folders whose files are loaded as they come, each below [watch.<name>]."
    )
    models: dict[str, ModelSettings] = Field(
        default_factory=dict, description="Embedding models, each below [models.<name>]; wordllama needs none."
    )
    mail: MailSettings = Field(default_factory=MailSettings, description="Where reports are sent from.")

    @property
    def warehouse_url(self) -> str:
        return self.warehouse.url or f"file://{self.data_dir}/warehouse"

    @property
    def catalog_url(self) -> str:
        return self.catalog.url or f"sqlite:///{self.data_dir}/catalog.db"

    @property
    def catalog_file(self) -> Path | None:
        """The file of an SQLite catalog."""
        url = self.catalog_url
        return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None

    @property
    def address(self) -> str:
        """The URL under which this machine reaches the HTTP server."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.server.host, self.server.host)  # noqa: S104
        return f"http://[{host}]:{self.server.port}" if ":" in host else f"http://{host}:{self.server.port}"


def load(
    config: Path | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Read the settings. `overrides` are flags by dotted name (`server.port`); a None among them is no flag."""
    environment = os.environ if environment is None else environment
    found = find_config(config, environment)
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    if found is not None:
        _take_file(found, values, places)
    _take_environment(environment, values, places)
    for name, value in (overrides or {}).items():
        if value is not None:
            _put(values, name, value)
            places[name] = "the command line"
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise _wrong_value(error, places, found) from error
    _refuse_remote(settings, places)
    return _with_secrets(
        settings.model_copy(update={"data_dir": Path(os.path.abspath(settings.data_dir.expanduser()))})
    )


def find_config(config: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The configuration file that counts: the one named, else `FRAZIL_CONFIG`, else `frazil.toml` here, else none."""
    named = config or (Path(environment["FRAZIL_CONFIG"]) if environment.get("FRAZIL_CONFIG") else None)
    if named is not None and not named.is_file():
        raise Misconfigured(
            f"there is no configuration file {named}", code="config_missing", hint="check --config or FRAZIL_CONFIG"
        )
    path = named or Path(FILE_NAME)
    return path.absolute() if path.is_file() else None


def _take_file(path: Path, values: dict[str, Any], places: dict[str, str]) -> None:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(
            f"{path} is not valid TOML: {error}", code="config_syntax", hint="correct this line of the file"
        ) from error
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror}", code="config_unreadable") from error
    for name, value in _leaves(content):
        _check_name(name, f"in {path}")
        if _is_secret(name):
            raise Misconfigured(
                f"{name} is a secret and must not be in {path}",
                code="secret_in_file",
                hint=f"remove it from the file and set {_variable(name)}{_file_alternative(name)}; "
                "then change the secret, because copies of the file may contain it",
            )
        if (
            name.endswith("url")
            and isinstance(value, str)
            and "@" in value
            and ":" in value.split("@")[0].split("//")[-1]
        ):
            raise Misconfigured(
                f"{name} in {path} contains a password",
                code="secret_in_file",
                hint=f"remove the password from the URL and set {_variable(name.replace('url', 'password'))}",
            )
        if name == "pipeline.spark_conf" and isinstance(value, Mapping):
            _refuse_spark_secrets(value, path)
        _put(values, name, value)
        places[name] = str(path)


def _refuse_spark_secrets(conf: Mapping[str, Any], path: Path) -> None:
    for key, value in flat_settings(conf).items():
        if is_secret(key, str(value)):
            raise Misconfigured(
                f"{key} of pipeline.spark_conf is a secret and must not be in {path}",
                code="secret_in_file",
                hint="remove it from the file and write it to the file of pipeline.spark_secrets_file (mode 0600), "
                "or set FRAZIL_PIPELINE__SPARK_CONF; then change the secret, because copies of the file may contain it",
            )


def _take_environment(environment: Mapping[str, str], values: dict[str, Any], places: dict[str, str]) -> None:
    by_variable = {_variable(name): name for name in _names()}
    for variable, value in sorted(environment.items()):
        if not variable.upper().startswith(PREFIX) or variable.upper() in _NOT_SETTINGS:
            continue
        name = by_variable.get(variable.upper())
        if name is None:
            _check_variable(variable.upper(), by_variable)
            continue
        if name in _OBJECTS:
            _put(values, name, _json_object(variable, value))
        else:
            _put(values, name, value)
        places[name] = variable


def _check_variable(variable: str, by_variable: Mapping[str, str]) -> None:
    """A variable that looks like a setting but is not one is a typo. Other variables with the prefix are ignored."""
    squeezed = {known.replace("__", "_"): known for known in by_variable}
    close = [squeezed[variable]] if variable in squeezed else get_close_matches(variable, by_variable, n=1, cutoff=0.85)
    if close or "__" in variable:
        raise Misconfigured(
            f"the environment variable {variable} is not a setting",
            code="unknown_setting",
            hint=f"did you mean {close[0]}?" if close else "list all settings with `frazil doctor --settings`",
        )


def _check_name(name: str, where: str) -> None:
    known = list(_names())
    if name in known or name.startswith("pipeline.spark_conf."):
        return
    sections = {known_name.partition(".")[0] for known_name in known if "." in known_name}
    last = name.rpartition(".")[2]
    same_section = [k for k in known if k.rpartition(".")[0] == name.rpartition(".")[0]]
    by_last = {k.rpartition(".")[2]: k for k in known} | {k.rpartition(".")[2]: k for k in same_section}
    close = (
        get_close_matches(name, known, n=1, cutoff=0.7)
        or [by_last[match] for match in get_close_matches(last, by_last, n=1)]
        or get_close_matches(name, sections, n=1)
    )
    raise Misconfigured(
        f"{name!r} is not a setting ({where})",
        code="unknown_setting",
        hint=f"did you mean {close[0]!r}?" if close else "list all settings with `frazil doctor --settings`",
        details={"key": name, "closest": close[0] if close else None},
    )


def _wrong_value(error: ValidationError, places: Mapping[str, str], config: Path | None) -> Misconfigured:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    known = _names()
    field = known.get(name) or known.get(name.rpartition(".")[0])
    # The value of a source's setting may be a DSN with its password; that of a model's or Spark's, a
    # key.
    secret = _is_secret(name) or name.startswith(("sources.", "models.", "pipeline.spark_conf"))
    shown = "not valid" if secret else f"{first['input']!r}"
    looked = f"{_variable(name)}, then {config or FILE_NAME + ' (not found)'}"
    default = (
        "" if field is None or secret else f"; the default is {_shown(field.get_default(call_default_factory=True))}"
    )
    return Misconfigured(
        f"{name} is {shown}: {first['msg'][:1].lower()}{first['msg'][1:]} (from {places.get(name, 'the defaults')}; "
        f"searched: {looked})",
        code="wrong_setting",
        hint=f"{field.description if field else ''} Correct it in {places.get(name, 'the settings')}{default}".strip(),
        details={"key": name},
    )


def _refuse_remote(settings: Settings, places: Mapping[str, str]) -> None:
    host = settings.server.host
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback and not settings.server.allow_remote:
        raise Misconfigured(
            f"server.host is {host!r} (from {places.get('server.host', 'the defaults')}): other machines could connect",
            code="remote_refused",
            hint="use 127.0.0.1, or set server.allow_remote = true (FRAZIL_SERVER__ALLOW_REMOTE=true) "
            "if a proxy with TLS protects the server",
        )


def _with_secrets(settings: Settings) -> Settings:
    """The settings with the content of the secret files in the place of the secrets."""
    bus, catalog, warehouse = settings.bus, settings.catalog, settings.warehouse
    if bus.password_file is not None:
        bus = bus.model_copy(update={"password": _one_line("bus.password_file", bus.password_file)})
    if catalog.password_file is not None:
        catalog = catalog.model_copy(update={"password": _one_line("catalog.password_file", catalog.password_file)})
    if warehouse.credentials_file is not None:
        warehouse = warehouse.model_copy(update=_key_pair("warehouse.credentials_file", warehouse.credentials_file))
    pipeline = settings.pipeline
    if pipeline.spark_secrets_file is not None:
        secrets = _spark_secrets("pipeline.spark_secrets_file", pipeline.spark_secrets_file)
        pipeline = pipeline.model_copy(update={"spark_conf": {**secrets, **pipeline.spark_conf}})
    return settings.model_copy(update={"bus": bus, "catalog": catalog, "warehouse": warehouse, "pipeline": pipeline})


def _spark_secrets(name: str, path: Path) -> dict[str, str]:
    """Settings in the format of Spark's files: `key = value` or `key value`; lines that begin with # are comments."""
    found = {}
    for number, line in enumerate(read_private(path.expanduser(), f"from {name}").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        words = re.fullmatch(r"\s*(spark\.[^\s=]+)\s*[=\s]\s*(\S.*?)\s*", line)
        if words is None:
            raise Misconfigured(
                f"line {number} of {path} (from {name}) is not a Spark setting",
                code="bad_secret_file",
                hint="write lines like spark.authenticate.secret = …",
            )
        found[words[1]] = words[2]
    return found


def _one_line(name: str, path: Path) -> SecretStr:
    lines = read_private(path.expanduser(), f"from {name}").splitlines()
    if len(lines) != 1 or not lines[0].strip():
        raise Misconfigured(
            f"{path} (from {name}) must have exactly one line", code="bad_secret_file", hint="write only the secret"
        )
    return SecretStr(lines[0].strip())


def _key_pair(name: str, path: Path) -> dict[str, Any]:
    """The two halves of an S3 key; the file that AWS tools write (`[default]`, `aws_access_key_id = …`) is read too."""
    words: dict[str, str] = {}
    for line in read_private(path.expanduser(), f"from {name}").splitlines():
        key, equals, value = line.partition("=")
        if equals:
            words.setdefault(key.strip().lower().removeprefix("aws_"), value.strip().strip("\"'"))
    if not (words.get("access_key_id") and words.get("secret_access_key")):
        raise Misconfigured(
            f"{path} (from {name}) does not contain an S3 key",
            code="bad_secret_file",
            hint="write the two lines access_key_id = … and secret_access_key = …",
        )
    return {"access_key_id": words["access_key_id"], "secret_access_key": SecretStr(words["secret_access_key"])}


def _names() -> dict[str, Any]:
    """Every setting by its dotted name."""
    found: dict[str, Any] = {}
    for name, field in Settings.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found |= {f"{name}.{key}": value for key, value in inner.model_fields.items()}
        else:
            found[name] = field
    return found


def reference() -> list[tuple[str, str, str, str]]:
    """Name, variable, default and help of every setting."""
    return [
        (name, _variable(name), _shown(field.get_default(call_default_factory=True)), field.description or "")
        for name, field in _names().items()
    ]


def _shown(value: Any) -> str:
    if isinstance(value, ByteSize):
        return value.human_readable()
    return "none" if value is None else str(value)


def _is_secret(name: str) -> bool:
    field = _names().get(name)
    return field is not None and "SecretStr" in str(field.annotation)


def _file_alternative(name: str) -> str:
    section, _, key = name.rpartition(".")
    for candidate in (f"{section}.{key}_file", f"{section}.credentials_file"):
        if candidate in _names():
            return f", or {candidate} to a file of mode 0600"
    return ""


def _variable(name: str) -> str:
    return PREFIX + name.replace(".", "__").upper()


def _leaves(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and name != "pipeline.spark_conf" and name not in _names():
            if not value and not prefix and name not in Settings.model_fields:
                yield name, value
            yield from _leaves(value, f"{name}.")
        else:
            yield name, value


def _put(values: dict[str, Any], name: str, value: Any) -> None:
    section, _, key = name.rpartition(".")
    (values.setdefault(section, {}) if section else values)[key] = value


def _json_object(variable: str, text: str) -> dict[str, Any]:
    try:
        return TypeAdapter(dict[str, Any]).validate_json(text)
    except ValidationError as error:
        raise Misconfigured(
            f"{variable} is not a JSON object", code="wrong_setting", hint='for example {"spark.ui.enabled": "false"}'
        ) from error
