"""Configuration of a coordinator: flags, then `VEILGP_*` in the environment, then a TOML file.

The file is the one that `--config` or `VEILGP_CONFIG` names, else `veilgp.toml` in the data
directory if there is one. Unknown keys are errors, wherever they stand: a misspelt setting must not
look like one that was heeded.
"""

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import TomlConfigSettingsSource as TomlFile
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from privacy.securesum.masking import body_bytes
from service.errors import SettingsError

PREFIX = "VEILGP_"
FILE = "veilgp.toml"
_OF_OTHERS = ("VEILGP_CONFIG", "VEILGP_HOME")
"""Known in the environment, and no settings: the file's own place, and the SDK's home."""

MAX_UPLOAD_HEADER = 4 + (1 << 20)
"""Octets of what comes before a vector in its request: a header, after its length."""

Positive = Annotated[int, Field(gt=0)]


class Settings(BaseSettings):
    """What can be configured; every value has a default that works on one machine."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    data_dir: Path = Path("veilgp-data")
    """Where everything is kept: the database, and spooled uploads."""
    database_url: str | None = Field(default=None, repr=False)
    """postgresql://user:password@host/name; by default SQLite in the data directory."""
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    """Zero for any that is free."""
    public_url: str | None = None
    """How hospitals reach this coordinator; join links begin with it. By default as the admin
    does."""
    tls_certificate: Path | None = None
    """PEM file with the certificate's chain; needs `tls_key`."""
    tls_key: Path | None = None
    behind_tls_proxy: bool = False
    """Something in front of this coordinator speaks TLS: then it may listen without."""
    max_connections: Positive = 1000
    """More are answered 503, and come again; each member that waits for what is next has one."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    open_metrics: bool = False
    """Whether anyone who reaches this coordinator may read `/metrics`; else only the admin."""
    max_body: Positive = 1 << 20
    """The most octets of a JSON body, where a route does not say more."""
    max_vector: Positive = 1 << 24
    """The most numbers of one uploaded vector."""
    max_spool: Positive = 4 << 30
    """The most octets of vectors that are arriving at one time; the others wait their turn."""
    body_deadline_s: Annotated[float, Field(gt=0)] = 30
    """How long a body may take to arrive."""
    vector_deadline_s: Annotated[float, Field(gt=0)] = 600
    """The same of a vector."""
    repair_after_s: Annotated[float, Field(gt=0)] = 20
    """How long a survivor may keep silent before the others open their shares of its key."""
    restart_after_s: Annotated[float, Field(gt=0)] = 300
    """How long the keys of a member may be missing before all begin with new ones."""
    gather_s: Annotated[float, Field(gt=0)] = 60
    """With differential privacy: how long a run waits for all members before it begins with those
    that are there."""
    leave_out_after_s: Annotated[float, Field(gt=0)] = 120
    """With differential privacy: how long a sum waits for a member before it goes on without."""
    lease_s: Annotated[float, Field(gt=0)] = 10
    """How long a replica that computes may keep silent before another does its work."""
    max_predict_body: Positive = 16 << 20
    """The most octets of a table to predict."""
    max_predict_rows: Positive = 100_000
    """The most rows of a table to predict."""
    caller_rows_per_minute: Positive = 100_000
    """How many rows one caller's token may ask for, on average and at once."""
    least_rows_for_variance: Annotated[int, Field(ge=0)] = 2_000
    """Of a model of fewer training rows, callers get means only: variances would tell the rows."""
    models_in_memory: Positive = 8
    """How many models are kept ready to predict."""
    run_deadline_s: Positive = 3600
    """When a run ends as failed, unless it says otherwise itself."""
    shutdown_s: Positive = 10
    """How long requests under way may take to end when the coordinator is stopped."""

    @property
    def url(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite:///{self.data_dir / 'veilgp.sqlite'}"

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is one file, which one coordinator alone may have open."""
        return make_url(self.url).get_backend_name() == "sqlite"

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, url: str | None) -> str | None:
        if url is None:
            return None
        try:
            parsed = make_url(url)
        except ArgumentError:
            parsed = URL.create("none")
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
            # The URL itself is not repeated: it may have a password in it.
            raise ValueError("the database is sqlite:///… or postgresql://…")
        return parsed.render_as_string(hide_password=False)

    @field_validator("public_url")
    @classmethod
    def _plain_address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        extra = parts.path.strip("/") or parts.query or parts.fragment or parts.username
        if parts.scheme not in ("http", "https") or not parts.hostname or extra:
            raise ValueError(
                "the public URL is https://host or https://host:port, without a path: members "
                "sign the paths that they ask for, so a proxy may not change them"
            )
        return url.rstrip("/")

    @field_validator("tls_certificate", "tls_key")
    @classmethod
    def _readable(cls, file: Path | None) -> Path | None:
        if file is not None and not os.access(file, os.R_OK):
            raise ValueError(f"the file {file} is not there, or cannot be read")
        return file

    @model_validator(mode="after")
    def _secure(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together: give both, or neither")
        if self.tls_certificate or self.behind_tls_proxy or is_loopback(self.host):
            return self
        raise ValueError(
            f"listening on {self.host} without TLS would show tokens to the network: give "
            "tls_certificate and tls_key, or say behind_tls_proxy where a proxy speaks TLS"
        )

    @model_validator(mode="after")
    def _room_for_one(self) -> Self:
        least = MAX_UPLOAD_HEADER + body_bytes(self.max_vector)
        if self.max_spool < least:
            raise ValueError(
                f"max_spool is {self.max_spool} octets, and one vector of max_vector numbers "
                f"arrives in up to {least}: raise the one, or lower the other"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Ask the flags first, then the environment, then the file."""
        del dotenv_settings, file_secret_settings  # not asked
        return init_settings, env_settings, TomlFile(settings_cls)


def load(flags: Mapping[str, Any], *, config: Path | None = None) -> Settings:
    """Put the settings together, or say which is wrong; `flags` are those that were given."""
    _check_environment()
    file = config or (Path(named) if (named := os.environ.get("VEILGP_CONFIG")) else None)
    if file is None:
        directory = flags.get("data_dir") or os.environ.get("VEILGP_DATA_DIR")
        default = Path(directory or Settings.model_fields["data_dir"].default) / FILE
        file = default if default.is_file() else None
    if file is not None:
        _check_file(file)

    class Configured(Settings):
        model_config = SettingsConfigDict(toml_file=file)

    try:
        return Configured(**flags)
    except ValidationError as error:
        raise SettingsError(_explained(error)) from None


def _check_environment() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields} | set(_OF_OTHERS)
    given = {name for name in os.environ if name.upper().startswith(PREFIX)}
    unknown = sorted(name for name in given if name.upper() not in known)
    if unknown:
        raise SettingsError(
            f"Unknown in the environment: {', '.join(unknown)}. Known are "
            f"{', '.join(sorted(known))}."
        )


def _check_file(file: Path) -> None:
    try:
        with file.open("rb") as opened:
            keys = tomllib.load(opened).keys()
    except OSError as error:
        raise SettingsError(f"The settings in {file} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"The settings in {file} are not TOML: {error}.") from None
    unknown = sorted(keys - Settings.model_fields.keys())
    if unknown:
        raise SettingsError(
            f"Unknown in {file}: {', '.join(unknown)}. Known are "
            f"{', '.join(sorted(Settings.model_fields))}."
        )


def _explained(error: ValidationError) -> str:
    # Values are left out: the database's URL may have a password in it.
    wrong = [
        ": ".join([*map(str, each["loc"]), each["msg"].removeprefix("Value error, ")])
        for each in error.errors(include_input=False, include_url=False)
    ]
    return f"The settings are refused: {'; '.join(wrong)}."


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
