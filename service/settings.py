"""Configuration of a coordinator: flags, then `VEILGP_*` in the environment, then a TOML file.

Unknown keys are errors: a misspelt setting must not look like one that was heeded.
"""

from pathlib import Path

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """What can be configured; every value has a default that works on one machine."""

    model_config = SettingsConfigDict(env_prefix="VEILGP_", extra="forbid", frozen=True)

    data_dir: Path = Path("veilgp-data")
    """Where everything is kept: the database, and spooled uploads."""
    database_url: str | None = None
    """SQLAlchemy's URL; by default SQLite in the data directory."""
    host: str = "127.0.0.1"
    port: int = 8000
    public_url: str | None = None
    """How hospitals reach this coordinator; join links begin with it."""
    max_body: int = 1 << 20
    """The most octets of a JSON body."""
    repair_after_s: PositiveFloat = 20
    """How long a survivor may keep silent before the others open their shares of its key."""
    restart_after_s: PositiveFloat = 300
    """How long the keys of a member may be missing before all begin with new ones."""
    max_predict_body: PositiveInt = 16 << 20
    """The most octets of a table to predict."""
    max_predict_rows: PositiveInt = 100_000
    """The most rows of a table to predict."""
    caller_rows_per_minute: PositiveInt = 100_000
    """How many rows one caller's token may ask for, on average and at once."""
    least_rows_for_variance: NonNegativeInt = 2_000
    """Of a model of fewer training rows, callers get means only: variances would tell the rows."""
    models_in_memory: PositiveInt = 8
    """How many models are kept ready to predict."""

    @property
    def url(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite:///{self.data_dir / 'veilgp.sqlite'}"
