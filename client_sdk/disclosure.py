"""What a program would take out of the building, under which terms, as a person reads it."""

from dataclasses import dataclass

from client_sdk.readable import readable
from kernels.rounds.disclosed import StageDisclosure, columns_read, stages_disclosed
from kernels.rounds.program import Program
from privacy.securesum.terms import Terms


@dataclass(frozen=True)
class Disclosure:
    """What would leave, of which columns, under which terms."""

    columns: tuple[str, ...]
    stages: tuple[StageDisclosure, ...]
    terms: Terms

    @classmethod
    def of(cls, program: Program, terms: Terms) -> "Disclosure":
        """Work it out from the program."""
        return cls(columns_read(program.schema), stages_disclosed(program), terms)

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
        lines.append(
            "  differential privacy: yes. Noise covers each patient's part in every sum."
            if self.terms.differential_privacy
            else "  differential privacy: NO. The sums are exact. Nobody sees this hospital's own, "
            "but what a sum over all members says about a rare patient it says to everyone; two "
            "sums that differ by a patient show that patient, so the table stays the same."
        )
        lines.append(
            "  members that fall silent: the session GOES ON WITHOUT THEM (allow_shrinking). The "
            "sum with this hospital minus a sum without it is this hospital's own, and the "
            "coordinator can ask for both."
            if self.terms.allow_shrinking
            else "  members that fall silent: the run waits for them. Exact sums have the same "
            "members every time, so no difference of two is one hospital's."
        )
        return "\n".join(lines)
