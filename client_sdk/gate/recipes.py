"""The range of recipes that a site accepts: kernels, training and splits, as `[recipes]`.

A coordinator may choose the program, and extreme parameters turn an honest algorithm into a
microscope: features without bounds or with steep frequencies isolate single rows, many local steps
memorise them, thousands of hostile public rows are as many probes. The defaults allow the defaults
of all installed algorithms. What an algorithm does comes from its own declaration; nothing here
knows an algorithm by name.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from client_sdk.errors import PolicyFileError, RecipeForbidden
from client_sdk.gate import refusals
from kernels.features.spec import Architecture

if TYPE_CHECKING:
    from kernels.rounds.program import Program

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Recipes:
    """What a program's parameters may be."""

    kernels: tuple[str, ...] = (
        "deep",
        "inducing",
        "linear",
        "matern12",
        "matern32",
        "matern52",
        "rbf",
        "replicated",
        "shifted",
    )
    """Architectures of the kernel, with or without a linear part beside them. Features without a
    bound are always refused."""
    lengthscale: Interval = (0.1, 100.0)
    """Of kernels without a network, in standard deviations of the columns."""
    frequency_scale: Interval = (0.01, 3.0)
    """Of kernels with a network."""
    replication_scale: Interval = (0.001, 1.0)
    """Of replicated kernels."""
    max_rate_times_steps: float = 10.0
    """Maximum learning rate times steps of one stage."""
    max_local_passes: int = 50
    """Maximum number of times that a site trains on each row between two sums."""
    max_rows: Interval = (1_000, 10_000_000)
    """The program's own limit of rows per site, which determines the rounding of its sums."""
    held_out: Interval = (0.1, 0.5)
    """Share of the rows that is held out; 0 is allowed too."""
    public_sets: tuple[str, ...] = ()
    """SHA-256 of the public tables that may be used."""

    INTERVALS: ClassVar[tuple[str, ...]] = (
        "lengthscale",
        "frequency_scale",
        "replication_scale",
        "max_rows",
        "held_out",
    )

    def __post_init__(self) -> None:
        for name in ("kernels", "public_sets"):
            given = getattr(self, name)
            if not isinstance(given, tuple | list) or not all(isinstance(e, str) for e in given):
                raise PolicyFileError(f"recipes.{name} must be a list of texts, not {given!r:.60}")
            object.__setattr__(self, name, tuple(given))
        if unknown := [each for each in self.kernels if each not in tuple(Architecture)]:
            raise PolicyFileError(
                f"recipes.kernels has unknown kernels: {', '.join(map(repr, unknown))}; known are "
                f"{', '.join(Architecture)}"
            )
        for name in self.INTERVALS:
            object.__setattr__(self, name, _interval(name, getattr(self, name)))
        for name in ("max_rate_times_steps", "max_local_passes"):
            _check_number(name, getattr(self, name))

    @classmethod
    def of(cls, plain: object) -> "Recipes":
        """Read the table of a policy; an unknown line is an error."""
        if not isinstance(plain, dict):
            raise PolicyFileError("recipes must be a table, [recipes]")
        known = [field.name for field in fields(cls)]
        if unknown := [name for name in plain if name not in known]:
            raise PolicyFileError(
                f"[recipes] has unknown lines: {', '.join(map(repr, unknown))}; known lines are "
                f"{', '.join(known)}"
            )
        return cls(**plain)

    def problems(self, program: "Program") -> Iterator[RecipeForbidden]:
        """Yield a refusal for each parameter of a program that is outside these ranges."""
        from kernels.rounds.plan import declared  # loads the algorithms, and so torch

        for kernel in program.kernels:
            if kernel.squared_norm_bound is None:
                yield refusals.unbounded_kernel(kernel.architecture)
            elif kernel.architecture not in self.kernels:
                yield refusals.recipe(
                    "kernel", kernel.architecture, allowed=", ".join(self.kernels), line="kernels"
                )
        for name, values in numbers_in(program).items():
            least, most = getattr(self, name)
            for value in values:
                free = name == "held_out" and value == 0
                if not free and not least <= value <= most:
                    allowed = f"{least:g} to {most:g}"
                    yield refusals.recipe(name, f"{value:g}", allowed=allowed, line=name)
        for stage in declared(program):
            yield from self._stage_problems(
                stage.rate_times_steps, stage.local_passes, stage.public_set
            )

    def _stage_problems(
        self, rate_times_steps: float, local_passes: int, public_set: str | None
    ) -> Iterator[RecipeForbidden]:
        if not rate_times_steps <= self.max_rate_times_steps:
            yield refusals.recipe(
                "learning rate times steps",
                f"{rate_times_steps:g}",
                allowed=f"at most {self.max_rate_times_steps:g}",
                line="max_rate_times_steps",
            )
        if local_passes > self.max_local_passes:
            yield refusals.recipe(
                "number of local passes",
                str(local_passes),
                allowed=f"at most {self.max_local_passes}",
                line="max_local_passes",
            )
        if public_set is not None and public_set not in self.public_sets:
            yield refusals.public_set_forbidden(public_set)


def numbers_in(program: "Program") -> dict[str, tuple[float, ...]]:
    """Return the numbers of a program that have a range, by its name, each different one once."""
    kernels = program.kernels
    found = {
        "lengthscale": [own.lengthscale for own in kernels],
        "frequency_scale": [own.frequency_scale for own in kernels],
        "replication_scale": [own.replication_scale for own in kernels],
        "max_rows": [float(program.max_rows)],
        "held_out": [program.held_out],
    }
    return {name: tuple(dict.fromkeys(values)) for name, values in found.items()}


def _interval(name: str, given: object) -> Interval:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise PolicyFileError(f"recipes.{name} must be two numbers, not {given!r:.60}")
    for each in given:
        _check_number(name, each)
    least, most = given
    if least > most:
        raise PolicyFileError(f"recipes.{name}: the first number must be at most the second")
    return float(least), float(most)


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PolicyFileError(f"recipes.{name} must be a number, not {value!r:.60}")
    if not (math.isfinite(value) and value >= 0):
        raise PolicyFileError(f"recipes.{name} must be finite and at least 0, not {value!r:.60}")
