"""What a program would take out of the building, under which terms, as a person reads it."""

import math
from dataclasses import dataclass

from client_sdk.readable import readable
from kernels.rounds.ensemble.open_ensemble import asked, open_stage
from kernels.rounds.plan import StageDisclosure, columns_read, release_plan, stages_disclosed
from kernels.rounds.program import Program
from privacy.accounting.cost import Cost, cost
from privacy.accounting.promises import promised
from privacy.securesum.terms import Terms

_DELTA = 1e-5
"""At which the cost of a run is told where the session does not say."""


@dataclass(frozen=True)
class Disclosure:
    """What would leave, of which columns, under which terms."""

    columns: tuple[str, ...]
    stages: tuple[StageDisclosure, ...]
    terms: Terms
    unit: str
    rows: int
    """Of one patient at most, with differential privacy."""
    cost: Cost | None
    samples: int
    """Of this hospital's own model, at most, that are asked for beside the sums."""
    parameters: int
    """Numbers of one sample: a network of more than there are rows can know them by heart."""

    @classmethod
    def of(cls, program: Program, terms: Terms, *, delta: float | None = None) -> "Disclosure":
        """Work it out from the program; the cost is at the session's δ."""
        privacy = program.privacy
        spec, network = (None, None) if open_stage(program) is None else asked(program)
        return cls(
            columns_read(program.schema),
            stages_disclosed(program),
            terms,
            "row" if program.schema.patient is None else "patient",
            1 if privacy is None else privacy.max_rows_per_patient,
            None
            if privacy is None
            else cost(
                promised(release_plan(program, seed=0), honest=terms.honest), delta=delta or _DELTA
            ),
            0 if spec is None else spec.most_samples,
            0 if network is None else network.parameters,
        )

    @property
    def sums(self) -> int:
        """At most how many sums."""
        return sum(stage.sums for stage in self.stages)

    @property
    def numbers(self) -> int:
        """At most how many numbers, over all sums."""
        return sum(stage.sums * stage.numbers for stage in self.stages)

    def __str__(self) -> str:
        columns = ", ".join(map(readable, self.columns))
        lines = [
            "What would leave the building",
            f"  columns that are read: {columns}. No row and no cell leaves.",
        ]
        lines += [
            f"  {stage.algorithm}: {stage.words}; at most {stage.sums} "
            f"sum{'s' if stage.sums != 1 else ''} of at most {stage.numbers} numbers"
            for stage in self.stages
        ]
        lines.append(
            f"  in all at most {self.sums} vectors and {self.numbers} numbers. Each leaves masked: "
            "whoever has it learns nothing from it alone. What becomes known is the sum over all "
            f"members of the run, at least {self.terms.min_cohort}, even to a coordinator that "
            f"works together with {self.terms.max_colluders} of them."
        )
        if self.samples:
            lines.append(
                f"  BESIDE THE SUMS, only if the site's policy says open_ensemble = true: up to "
                f"{self.samples} samples of this hospital's own model, a network of "
                f"{self.parameters:,} parameters, and how many training rows it has, NOT MASKED. "
                "They are a function of this hospital's rows alone (a network of more parameters "
                "than rows can know each by heart), and no sum hides them: the coordinator can "
                "attack them (was this patient in the table? what was this patient's outcome?), "
                "and so, through predictions, can everyone whom it serves. They can be withdrawn "
                "at any time. Without that line they do not leave, and the hospital takes part in "
                "the sums all the same."
            )
        lines.append(
            self._noise(self.cost)
            if self.cost is not None
            else "  differential privacy: NO. The sums are exact. Nobody sees this hospital's own, "
            "but what a sum over all members says about a rare patient it says to everyone; two "
            "sums that differ by a patient show that patient, so the table stays the same. And an "
            "exact sum minus one with noise, of a private session that goes on without this "
            "hospital, is this hospital's own totals up to noise that hides one patient."
        )
        lines.append(
            "  members that fall silent: the session GOES ON WITHOUT THEM (allow_shrinking). The "
            "sum with this hospital minus a sum without it is this hospital's own, and the "
            "coordinator can ask for both."
            if self.terms.allow_shrinking
            else "  members that fall silent: the run goes on without them. Noise covers what the "
            f"difference of two sums would say of any one {self.unit}; it does not hide this "
            "hospital as a whole: its own totals, such as how many rows it has, may become known "
            "up to that noise, also by the difference to an exact sum of another session."
            if self.terms.differential_privacy
            else "  members that fall silent: the run waits for them. Exact sums have the same "
            "members every time, so no difference of two is one hospital's."
        )
        return "\n".join(lines)

    def _noise(self, cost: Cost) -> str:
        rows = f", with at most {self.rows} rows of one" if self.unit == "patient" else ""
        factor = math.exp(min(cost.epsilon, 50.0))
        return (
            f"  differential privacy: yes, for each {self.unit}{rows}. Every hospital adds noise "
            f"to its numbers, enough if {self.terms.honest} of them do. One run costs at most "
            f"ε = {cost.epsilon:.4g} at δ = {cost.delta:g}: whether any one {self.unit} is in the "
            f"table makes no outcome more than {factor:.3g} times as likely, but for a probability "
            f"of {cost.delta:g}. A sum that is lost and asked for again costs again."
        )
