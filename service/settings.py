"""Configuration of a coordinator: flags, then `VEILGP_*` in the environment, then a TOML file.

The file is the one that `--config` or `VEILGP_CONFIG` names, otherwise `veilgp.toml` in the data
directory if it exists. Unknown names are errors in each of them: a misspelt setting must not be
ignored silently.
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
"""Allowed environment variables that are not settings: the path of the file, the SDK's home."""

MAX_UPLOAD_HEADER = 4 + (1 << 20)
"""Most bytes before the vector in an upload: the 4-byte length of the header, and the header."""

Positive = Annotated[int, Field(gt=0)]


class Settings(BaseSettings):
    """All settings; every one has a default that works on one machine."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    data_dir: Path = Path("veilgp-data")
    """Directory of the SQLite database and of spooled uploads."""
    database_url: str | None = Field(default=None, repr=False)
    """`postgresql://user:password@host/name`; by default SQLite in the data directory."""
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    """0 for any free port."""
    public_url: str | None = None
    """The URL that hospitals use; join links start with it, and requests must be signed for its
    host. Required unless only this machine can connect; then by default the URL of the request."""
    tls_certificate: Path | None = None
    """PEM file with the certificate chain; needs `tls_key`."""
    tls_key: Path | None = None
    behind_tls_proxy: bool = False
    """A proxy in front of this coordinator handles TLS, so it may listen without TLS itself."""
    max_connections: Positive = 1000
    """Most open connections. Each member that waits for its next item has one."""
    max_unauthenticated: Positive = 500
    """Most of them whose current request has not been authenticated (yet). When there are more, the
    oldest of the address with most of them is closed; the rest is kept for members, admins and
    callers."""
    max_unauthenticated_per_address: Positive = 200
    """The same for one IP address (for IPv6 one network of 64 bits). Not applied if
    `behind_tls_proxy` is on: then every connection has the proxy's address."""
    header_deadline_s: Annotated[float, Field(gt=0)] = 10
    """Seconds within which the TLS handshake and the headers of a request must arrive."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    open_metrics: bool = False
    """Whether anyone may read `/metrics`; otherwise only the admin may."""
    max_body: Positive = 1 << 20
    """Most bytes of a JSON body, unless a route has its own limit."""
    max_vector: Positive = 1 << 24
    """Most numbers of one uploaded vector."""
    max_spool: Positive = 4 << 30
    """Most bytes of all uploads that are being received at one time; further ones must wait."""
    body_deadline_s: Annotated[float, Field(gt=0)] = 30
    """Seconds within which a body must arrive."""
    vector_deadline_s: Annotated[float, Field(gt=0)] = 600
    """Seconds within which an uploaded vector must arrive."""
    repair_after_s: Annotated[float, Field(gt=0)] = 20
    """Seconds a survivor may stay silent before the others open their shares of its key."""
    restart_after_s: Annotated[float, Field(gt=0)] = 300
    """Seconds the keys of a member may be missing before all members start with new keys."""
    author_after_s: Annotated[float, Field(gt=0)] = 10
    """With blind sums: seconds a member may take to write the next task, or to send what only
    members have, before another one is asked as well."""
    gather_s: Annotated[float, Field(gt=0)] = 60
    """With differential privacy: seconds a run waits for all members before it starts with those
    that are present."""
    leave_out_after_s: Annotated[float, Field(gt=0)] = 120
    """With differential privacy: seconds a sum waits for a member before it continues without
    it."""
    lease_s: Annotated[float, Field(gt=0)] = 10
    """Seconds a replica that works on a run may stay silent before another takes the run over."""
    max_predict_body: Positive = 16 << 20
    """Most bytes of the body of a prediction request."""
    max_predict_rows: Positive = 100_000
    """Most rows of a prediction request."""
    caller_rows_per_minute: Positive = 100_000
    """Rows a minute that one caller's token may have predicted; also the largest burst."""
    most_membership_auc: Annotated[float, Field(ge=0.5, le=1)] = 0.6
    """Callers get the variance of each row if it tells members of the training data from others
    with at most this AUC, as estimated from the model's rows and features; otherwise the average
    variance of all patients, and not the model itself. 1 for always, 0.5 for never. Callers that an
    admin has marked as trusted, and models with differential privacy, are not limited."""
    least_rows_for_variance: Annotated[int, Field(ge=0)] = 2_000
    """The same limit for methods other than fedbnr, for which there is no estimate: the least
    training rows of their smallest member. Below it callers get means only."""
    models_in_memory: Positive = 8
    """How many models are kept in memory for predictions."""
    run_deadline_s: Positive = 3600
    """Seconds after which a run ends as failed, unless the run has its own deadline."""
    shutdown_s: Positive = 10
    """Seconds that running requests may take to finish when the coordinator is stopped."""

    @property
    def url(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite:///{self.data_dir / 'veilgp.sqlite'}"

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is an SQLite file, which only one coordinator may have open."""
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
            # The URL itself is not repeated: it may contain a password.
            raise ValueError("must start with sqlite:/// or postgresql://")
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
                "must be https://host or https://host:port without a path: members sign the path "
                "of each request, so a proxy must not change it"
            )
        return url.rstrip("/")

    @field_validator("tls_certificate", "tls_key")
    @classmethod
    def _readable(cls, file: Path | None) -> Path | None:
        if file is not None and not os.access(file, os.R_OK):
            raise ValueError(f"the file {file} does not exist or is not readable")
        return file

    @model_validator(mode="after")
    def _secure(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key must be set together")
        if self.tls_certificate or self.behind_tls_proxy or is_loopback(self.host):
            return self
        raise ValueError(
            f"listening on {self.host} without TLS would expose tokens to the network: set "
            "tls_certificate and tls_key, or behind_tls_proxy if a proxy handles TLS"
        )

    @model_validator(mode="after")
    def _knows_its_name(self) -> Self:
        if self.public_url or (is_loopback(self.host) and not self.behind_tls_proxy):
            return self
        raise ValueError(
            "public_url must be set when other machines can connect (host = "
            f"{self.host}, behind_tls_proxy = {str(self.behind_tls_proxy).lower()}): set it to the "
            "https URL that hospitals use. Without it the Host header of a request would decide "
            "for which coordinator it must be signed"
        )

    @model_validator(mode="after")
    def _room_for_the_known(self) -> Self:
        if self.max_unauthenticated < self.max_connections:
            return self
        raise ValueError(
            f"max_unauthenticated = {self.max_unauthenticated} must be less than max_connections = "
            f"{self.max_connections}: the difference is kept for members, admins and callers"
        )

    @model_validator(mode="after")
    def _room_for_one(self) -> Self:
        least = MAX_UPLOAD_HEADER + body_bytes(self.max_vector)
        if self.max_spool < least:
            raise ValueError(
                f"max_spool must be at least {least} bytes, the size of an upload of max_vector = "
                f"{self.max_vector} numbers, not {self.max_spool}: raise max_spool or lower "
                "max_vector"
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
        """Return the sources in order of precedence: flags, environment, file."""
        del dotenv_settings, file_secret_settings  # not used
        return init_settings, env_settings, TomlFile(settings_cls)


def load(flags: Mapping[str, Any], *, config: Path | None = None) -> Settings:
    """Return the settings, or raise `SettingsError`; `flags` has only flags that were given."""
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
            f"Unknown environment variables: {', '.join(unknown)}. Known variables: "
            f"{', '.join(sorted(known))}."
        )


def _check_file(file: Path) -> None:
    try:
        with file.open("rb") as opened:
            keys = tomllib.load(opened).keys()
    except OSError as error:
        raise SettingsError(f"The settings file {file} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"The settings file {file} is not valid TOML: {error}.") from None
    unknown = sorted(keys - Settings.model_fields.keys())
    if unknown:
        raise SettingsError(
            f"Unknown settings in {file}: {', '.join(unknown)}. Known settings: "
            f"{', '.join(sorted(Settings.model_fields))}."
        )


def _explained(error: ValidationError) -> str:
    # Values are left out: the database's URL may contain a password.
    wrong = [
        ": ".join([*map(str, each["loc"]), each["msg"].removeprefix("Value error, ")])
        for each in error.errors(include_input=False, include_url=False)
    ]
    return f"Invalid settings: {'; '.join(wrong)}."


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
