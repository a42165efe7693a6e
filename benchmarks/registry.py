"""The benchmarks by name: a module of this package each, with a docstring and `run(options)`."""

from argparse import Namespace
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol

RESULTS = Path(__file__).parent / "results"

NAMES = (
    "dp",
    "fedbnr",
    "secure_sum",
    "session",
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
        """Measure, print a table on the way, write pictures under RESULTS, return the figures."""


def load(name: str) -> Benchmark:
    """Import one benchmark; only its own dependencies are needed."""
    module: Benchmark = import_module(f"benchmarks.{name}")
    return module


def summary(benchmark: Benchmark) -> str:
    """Return the first line of a benchmark's docstring."""
    return (benchmark.__doc__ or "").strip().splitlines()[0]
