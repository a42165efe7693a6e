"""The seven sets by name, each in a file with its traps, and one that privacy is measured on."""

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.outcomes.dataset import Dataset
from benchmarks.outcomes.sets import flchain, heart, medpar, mnist, rwm5yr, stroke, wdbc

LOADERS: Mapping[str, Callable[[Path], Dataset]] = {
    "heart": heart.load,
    "stroke": stroke.load,
    "wdbc": wdbc.load,
    "flchain": flchain.load,
    "medpar": medpar.load,
    "rwm5yr": rwm5yr.load,
    "mnist": mnist.load,
    "flchain_5y": flchain.load_5y,
}

__all__ = ["LOADERS"]
