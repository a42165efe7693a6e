"""The four sets of the privacy benchmark with public bounds, and their rows in two dealt parts.

With differential privacy a column's bounds may not be looked up in the table. They come from this
data dictionary: what the quantity or its instrument can show (percentages, hours, lux, a clinical
score), rounded outward from what the sets' descriptions say. All values of the sets are within.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.datasets import Dataset, Matrix
from benchmarks.dealing import dealing_of
from kernels.rounds.site.site import Part, Site
from kernels.tables.records import Records
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target

Bounds = Mapping[str, tuple[float, float]]

_FLAG = (0.0, 1.0)
DICTIONARY: Mapping[str, Bounds] = {
    "ccpp": {
        "AT": (0, 40),
        "V": (20, 90),
        "AP": (990, 1040),
        "RH": (20, 105),
        "target": (400, 500),
    },
    "sml": {
        "T_weather_forecast": (-5, 40),
        "CO2_dining": (150, 650),
        "CO2_bedroom": (150, 650),
        "RH_dining": (20, 70),
        "RH_bedroom": (20, 70),
        "light_dining": (0, 120),
        "light_bedroom": (0, 200),
        "rain": _FLAG,
        "sun_dusk": (0, 650),
        "wind": (0, 10),
        "sun_west_facade": (0, 100_000),
        "sun_east_facade": (0, 100_000),
        "sun_south_facade": (0, 100_000),
        "sun_irradiance": (-10, 1200),
        "RH_outdoor": (10, 100),
        "day_of_week": (1, 7),
        "cal_day": (1, 31),
        "cal_month": (3, 5),  # the study ran from March to May
        "cal_hour": (0, 23),
        "cal_minute": (0, 59),
        "target": (10, 30),
    },
    "parkinsons": {
        "age": (30, 90),
        "sex": _FLAG,
        "test_time": (-10, 250),
        "Jitter": (0, 0.1),
        "Jitter_Abs": (0, 0.0005),
        "Jitter_RAP": (0, 0.06),
        "Jitter_PPQ5": (0, 0.07),
        "Jitter_DDP": (0, 0.18),
        "Shimmer": (0, 0.3),
        "Shimmer_dB": (0, 2.5),
        "Shimmer_APQ3": (0, 0.2),
        "Shimmer_APQ5": (0, 0.2),
        "Shimmer_APQ11": (0, 0.3),
        "Shimmer_DDA": (0, 0.5),
        "NHR": (0, 0.8),
        "HNR": (0, 40),
        "RPDE": (0, 1),
        "DFA": (0.5, 1),
        "PPE": (0, 1),
        "target": (0, 60),
    },
    "bike": {
        "hour": (0, 23),
        "temperature_C": (-20, 40),
        "humidity_pct": (0, 100),
        "wind_m_s": (0, 10),
        "visibility_10m": (0, 2000),
        "dew_point_C": (-40, 30),
        "solar_MJ_m2": (0, 4),
        "rain_mm": (0, 40),
        "snow_cm": (0, 10),
        "season_autumn": _FLAG,
        "season_spring": _FLAG,
        "season_summer": _FLAG,
        "season_winter": _FLAG,
        "holiday": _FLAG,
        "functioning_day": _FLAG,
        "target": (-1.1, 5.2),  # 0 to about 4,000 bikes in [FedBNR]'s unit
    },
}


@dataclass(frozen=True, eq=False)
class Private:
    """One split: a site per client with rows for training and calibration, and test rows."""

    dataset: Dataset
    sites: tuple[Site, ...]
    test: Matrix

    @classmethod
    def load(cls, name: str, folder: Path, *, clients: int, seed: int) -> "Private":
        """Split as `datasets` does; no row is kept for stopping, which would cost budget."""
        plain = Dataset.load(name, folder)
        dataset = replace(plain, schema=bounded(plain.schema, DICTIONARY[name]))
        split = dataset.split(clients=clients, seed=seed)
        sites = tuple(_two_parts(site, seed) for site in split.sites)
        return cls(dataset, sites, split.test)

    def pooled(self, part: Part) -> Records:
        """Return all sites' rows of a part."""
        return Records.concatenate([site.records[part] for site in self.sites])


def bounded(schema: Schema, bounds: Bounds) -> Schema:
    """Return a schema of numeric columns with the bounds of a dictionary."""
    return Schema(
        tuple(Numeric(column.name, column.unit, *bounds[column.name]) for column in schema.numeric),
        tuple(Target(column.name, column.unit, *bounds[column.name]) for column in schema.targets),
    )


def _two_parts(site: Site, seed: int) -> Site:
    held_out = [site.records[Part.STOPPING], site.records[Part.CALIBRATION]]
    return Site(
        {
            Part.TRAINING: site.records[Part.TRAINING],
            Part.CALIBRATION: Records.concatenate(held_out),
        },
        dealing=dealing_of(seed),
    )
