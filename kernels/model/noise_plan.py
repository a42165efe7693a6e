"""How a program is made differentially private: plain data that every site reads and agrees to.

The unit is the patient where the schema names a patient column, else the row; two tables are
neighbours if one has one unit more. A unit has at most k = `max_rows_per_patient` rows: what a site
has beyond them is left out by a seeded choice. So what one row can change in a sum, a unit can
change k times over, and the layouts declare that as their blocks' sensitivity.

The noise of a sum is z times its sensitivity, z being the stage's entry of `multipliers`. The cost
follows from them alone: `privacy.accounting` works it out, here nothing is known of it.
"""

from dataclasses import dataclass
from typing import ClassVar

from kernels.errors import ProgramError
from kernels.parameter_checks import check_whole
from kernels.strict_json import is_number

_MOST = 1e6


@dataclass(frozen=True, kw_only=True)
class NoisePlan:
    """The noise of every sum of a program, and what it covers.

    multipliers: z of each sum of a stage, for every stage in order.
    max_rows_per_patient: k; 1 where the schema names no patient.
    target_clip: B, in standardised units: targets beyond ±B are trained on as ±B.
    """

    STORED_AS: ClassVar[str] = "noise-plan"

    multipliers: tuple[float, ...]
    max_rows_per_patient: int = 1
    target_clip: float = 3.0

    def __post_init__(self) -> None:
        if not isinstance(self.multipliers, tuple | list):
            raise ProgramError("multipliers must list a number for every stage")
        object.__setattr__(self, "multipliers", tuple(self.multipliers))
        numbers = {f"multipliers[{i}]": z for i, z in enumerate(self.multipliers)}
        for name, number in {**numbers, "target_clip": self.target_clip}.items():
            if not is_number(number) or not 1 / _MOST <= number <= _MOST:
                raise ProgramError(
                    f"{name} must be a number from {1 / _MOST:g} to {_MOST:g}, not {number!r:.40}"
                )
        check_whole(1, max_rows_per_patient=self.max_rows_per_patient)
