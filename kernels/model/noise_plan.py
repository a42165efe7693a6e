"""The noise plan of a program with differential privacy: plain data that every site agrees to.

The unit is the patient if the schema names a patient column, else the row; two tables are
neighbours if one has one unit more. A unit has at most k = `max_rows_per_patient` rows: a seeded
choice leaves out further rows. So a unit can change a sum by k times as much as one row, and the
layouts declare this as the sensitivity of their blocks.

The noise of a sum is z times its sensitivity, where z is the stage's entry in `multipliers`. The
privacy loss follows from the multipliers alone: `privacy.accounting` computes it, not this module.

A session's plan has the noise of every run that the session can ever have, whatever its kind, so
that nobody chooses any after seeing results.
"""

from dataclasses import dataclass
from typing import ClassVar

from kernels.errors import ProgramError
from kernels.parameter_checks import check_whole
from kernels.strict_json import is_number

_MOST = 1e6


@dataclass(frozen=True, kw_only=True)
class NoisePlan:
    """The noise of every sum of a program, and the limits that it relies on.

    multipliers: z of each sum of a stage, for every stage in order.
    max_rows_per_patient: k; 1 if the schema has no patient column.
    target_clip: B, in standardised units: in training, targets are clipped to ±B.
    evaluate, update: z of the stage that a run of this kind has if the session's program has no
        such stage (`kernels.rounds.run_kinds`); None if there is no such run.
    """

    STORED_AS: ClassVar[str] = "noise-plan"

    multipliers: tuple[float, ...]
    max_rows_per_patient: int = 1
    target_clip: float = 3.0
    evaluate: float | None = None
    update: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.multipliers, tuple | list):
            raise ProgramError(
                "multipliers must be a list of one number for every stage, not "
                f"{self.multipliers!r:.40}"
            )
        object.__setattr__(self, "multipliers", tuple(self.multipliers))
        numbers = {f"multipliers[{i}]": z for i, z in enumerate(self.multipliers)}
        added = {"evaluate": self.evaluate, "update": self.update}
        numbers |= {name: z for name, z in added.items() if z is not None}
        for name, number in {**numbers, "target_clip": self.target_clip}.items():
            if not is_number(number) or not 1 / _MOST <= number <= _MOST:
                raise ProgramError(
                    f"{name} must be a number from {1 / _MOST:g} to {_MOST:g}, not {number!r:.40}"
                )
        check_whole(1, max_rows_per_patient=self.max_rows_per_patient)
