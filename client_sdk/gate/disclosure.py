"""The disclosure: what a program would send out of the hospital and under which terms, as text."""

import math
from dataclasses import dataclass, replace

from client_sdk.readable import readable
from kernels.rounds.ensemble.open_ensemble import asked, open_stage
from kernels.rounds.expected.forecast_in_words import expected_in_words
from kernels.rounds.known import known, numbers_in_sums
from kernels.rounds.plan import StageDisclosure, columns_read, release_plan, stages_disclosed
from kernels.rounds.program import Program
from kernels.rounds.stated.numbers_known import Known, known_to, numbers_known
from privacy.accounting.cost import Cost, cost
from privacy.accounting.promises import promised
from privacy.ledger import least_budget
from privacy.securesum.terms import Terms

_DELTA = 1e-5
"""The δ at which a run's cost is reported when the session does not specify one."""


def known_under(terms: Terms, program: Program) -> Known:
    """Return what a run of a program makes known under a session's terms, at most."""
    return known(
        program,
        members=terms.min_cohort,
        blind=terms.blind,
        members_only=terms.members_only,
    )


def _cost(program: Program, terms: Terms, delta: float) -> Cost:
    """Return the least budget for one run; of a run that no budget affords, its cost."""
    releases = promised(release_plan(program), honest=terms.honest)
    least = least_budget(releases, delta=delta)
    if least is None:
        return cost(releases, delta=delta)
    return replace(least.filter.spent(releases), epsilon=least.epsilon)


@dataclass(frozen=True)
class Disclosure:
    """What would leave the hospital, computed from which columns, under which terms."""

    columns: tuple[str, ...]
    stages: tuple[StageDisclosure, ...]
    terms: Terms
    unit: str
    rows: int
    """Maximum number of rows of one patient that are used, with differential privacy."""
    cost: Cost | None
    """With differential privacy: the least budget of a site for one run, as its ledger counts."""
    samples: int
    """Maximum number of samples of this hospital's own model requested in addition to the sums."""
    parameters: int
    """Numbers in one sample: a network with more parameters than rows can memorise the rows."""
    numbers: int
    """Maximum number of numbers that leave, masked, over all sums."""
    known: Known
    """How many numbers become known to whom, and how many rows they come from."""
    expected: tuple[str, ...]
    """What the model can be expected to achieve, with differential privacy."""

    @classmethod
    def of(cls, program: Program, terms: Terms, *, delta: float | None = None) -> "Disclosure":
        """Derive the disclosure from the program; the cost is at the session's δ."""
        privacy = program.privacy
        spec, network = (None, None) if open_stage(program) is None else asked(program)
        return cls(
            columns_read(program.schema),
            stages_disclosed(program),
            terms,
            "row" if program.schema.patient is None else "patient",
            1 if privacy is None else privacy.max_rows_per_patient,
            None if privacy is None else _cost(program, terms, delta or _DELTA),
            0 if spec is None else spec.most_samples,
            0 if network is None else network.parameters,
            numbers_in_sums(program),
            known_under(terms, program),
            expected_in_words(program),
        )

    @property
    def sums(self) -> int:
        """Maximum number of sums."""
        return sum(stage.sums for stage in self.stages)

    def __str__(self) -> str:
        columns = ", ".join(map(readable, self.columns))
        lines = [
            "What would leave the hospital",
            f"  columns that are read: {columns}. No row and no cell leaves the hospital.",
        ]
        lines += [f"  {stage.sentence}" for stage in self.stages]
        lines.append(
            f"  in total at most {self.sums} vectors and {self.numbers:,} numbers. Each vector is "
            "masked before it leaves: a single masked vector reveals nothing. Only the sum over "
            f"all members of the run (at least {self.terms.min_cohort}) becomes known, to "
            f"{'every member' if self.terms.blind else 'the coordinator and to every member'}, "
            f"even if the coordinator colludes with {self.terms.max_colluders} of them."
        )
        lines.append(self._to_coordinator())
        lines.append(
            "  what is asked: this program and nothing else, from states that this hospital "
            "computes itself from totals that it verifies. A member that gives the group key to "
            "the coordinator ends that: together they can forge totals, and steer the states as "
            "far as the program's updates allow. The limits of the site's policy remain."
        )
        if self.cost is None:
            lines.append(f"  {numbers_known(self.known)}")
        if self.samples:
            lines.append(
                "  IN ADDITION TO THE SUMS, only if the site's policy sets open_ensemble = true: "
                f"up to {self.samples} samples of this hospital's own model, a network with "
                f"{self.parameters:,} parameters, and its number of training rows, NOT MASKED. "
                "They depend on this hospital's rows alone (a network with more parameters than "
                "rows can memorise every row), and no sum hides them: the coordinator can attack "
                "them (was this patient in the table? what was this patient's outcome?), and so "
                "can everyone to whom it serves predictions. They can be withdrawn at any time. "
                "Without that line no samples leave, and the hospital still takes part in the sums."
            )
        lines.append(
            self._noise(self.cost)
            if self.cost is not None
            else "  differential privacy: NO. The sums are exact, and so is the model, which "
            "contains the last of them. Nobody sees this hospital's own numbers, but whatever the "
            "sum over all members reveals about a rare patient, or about who is in the tables, it "
            "reveals to everyone who has it. Limits on numbers reduce that; only differential "
            "privacy ends it. Two sums that differ by one patient reveal that patient, so the "
            "table must stay the same. An exact sum minus a noisy sum from a private session that "
            "continues without this hospital gives this hospital's own totals, up to noise that "
            "hides one patient."
        )
        lines += [f"  {readable(said)}" for said in self.expected]
        lines.append(
            "  members that stop responding: the run continues without them. The noise hides "
            f"what the difference between two sums would reveal about any one {self.unit}. It does "
            "not hide this hospital as a whole: its own totals, such as its number of rows, may "
            "become known up to that noise, including through the difference from an exact sum of "
            "another session."
            if self.terms.differential_privacy
            else "  members that stop responding: the run waits for them. Exact sums always have "
            "the same members, so the difference between two sums never isolates one hospital. If "
            "a member cannot compute its numbers the run ends, and nobody learns which it was."
        )
        lines.append(
            "  who is seen: the coordinator learns which hospitals take part, when, and in how "
            "many sums of which length. What is recorded today stays sealed against later quantum "
            "computers; identities (Ed25519) would not withstand one."
        )
        lines.append(
            "  keys of other members: all must be confirmed. The policy line trust_first_use = true"
            " gives that up, and with it everything that rests on the group key: the coordinator "
            "could invent a member that holds it, and forge totals."
        )
        return "\n".join(lines)

    @property
    def short(self) -> str:
        """The same for somebody who has approved the whole text."""
        columns = ", ".join(map(readable, self.columns))
        said = [
            "What would leave the hospital, as it was approved:",
            f"at most {self.sums} masked vectors and {self.numbers:,} numbers,",
            f"from the columns {columns}. No row and no cell.",
        ]
        if self.cost is None:
            own = self.known
            said.append(known_to(coordinator=own.coordinator, hospitals=own.hospitals))
            said.append("Differential privacy: NO, sums and model are exact.")
        else:
            said.append(
                f"Differential privacy: one run costs any one {self.unit} at most ε = "
                f"{self.cost.epsilon:.4g} at δ = {self.cost.delta:g}."
            )
            said += [readable(sentence) for sentence in self.expected[:1]]
        return " ".join(said)

    def _to_coordinator(self) -> str:
        """Say what the coordinator reads of the sums, and who gets the model."""
        model = (
            "The finished model is for members only: the coordinator keeps it sealed to each "
            "member, and reads only the results that the program releases (scores on held-out "
            "rows, and the number of training rows)."
            if self.terms.members_only
            else "The finished model is given to the coordinator, which serves predictions with "
            "it. The model contains sums over all members."
        )
        signed = (
            "Before that each member signs the model that it has computed itself; so does this "
            "hospital."
        )
        if self.terms.blind:
            return (
                "  what the coordinator reads: no sum. Sums are blind: the coordinator adds masked "
                "vectors up and relays totals that only members can read; members write the tasks. "
                f"{model} {signed} A member that gives the group key to the coordinator ends "
                "blindness: the coordinator then reads every sum."
            )
        return f"  what the coordinator reads: every sum (sums are open). {model} {signed}"

    def _noise(self, cost: Cost) -> str:
        rows = f", with at most {self.rows} rows per patient" if self.unit == "patient" else ""
        factor = math.exp(min(cost.epsilon, 50.0))
        return (
            f"  differential privacy: yes, for each {self.unit}{rows}. Every hospital adds noise "
            f"to its numbers; the noise of {self.terms.honest} hospitals is sufficient. One run "
            f"costs at most ε = {cost.epsilon:.4g} at δ = {cost.delta:g}: the presence of any one "
            f"{self.unit} in the table makes no outcome more than {factor:.3g} times as likely, "
            f"except with probability {cost.delta:g}. A sum that is lost and requested again costs "
            "again."
        )
