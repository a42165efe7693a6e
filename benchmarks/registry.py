"""The benchmarks by name: each is a module in this package with a docstring and `run(options)`."""

from argparse import Namespace
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol

RESULTS = Path(__file__).parent / "results"

NAMES = (
    "auto",
    "dp",
    "fedbnr",
    "outcomes",
    "predictive",
    "secure_sum",
    "session",
    "shell",
    "statistics",
    "step_function",
    "synthetic",
    "table",
)

Figures = Mapping[str, float | int | str | bool]


class Benchmark(Protocol):
    """A benchmark module."""

    __doc__: str | None

    def run(self, options: Namespace) -> Figures:
        """Measure, print a table, write pictures to the RESULTS folder, and return the figures."""


def load(name: str) -> Benchmark:
    """Import one benchmark; this requires only its own dependencies."""
    module: Benchmark = import_module(f"benchmarks.{name}")
    return module


def summary(benchmark: Benchmark) -> str:
    """Return the first line of a benchmark's docstring."""
    return (benchmark.__doc__ or "").strip().splitlines()[0]
