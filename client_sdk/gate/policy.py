"""The site's own policy: it denies by default and overrides the session.

A hospital answers only what its policy allows, whatever the session says. An empty policy allows
nothing: a person at the hospital must list the algorithms and columns, the number of sums, whether
sums without differential privacy are allowed, and what the coordinator may read of these (sums,
model). The lines are in `stated_policy`. `policy_draft` writes a policy that allows exactly what a
session requests, with a comment at each line, for that person to review. The texts of refusals are
in `refusals`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from client_sdk.errors import PolicyRefusal, PolicyRefused
from client_sdk.gate import refusals
from client_sdk.gate.rows_in_a_sum import RowsInASum
from client_sdk.gate.stated_policy import StatedPolicy
from client_sdk.home.disclosures import DisclosureLedger, EnteredRun
from client_sdk.tables.summary import TableSummary
from kernels.rounds.ensemble.open_ensemble import open_stage
from kernels.rounds.plan import (
    algorithms_of,
    columns_read,
    dealt_share,
    declared,
    mixes_kernels,
    most_features,
    summed_together,
)
from kernels.rounds.program import Program
from kernels.rounds.site.parts import Part
from kernels.rounds.stated.numbers_known import Known
from kernels.rounds.task import program_digest
from privacy.accounting.events import Release
from privacy.errors import BudgetExceeded
from privacy.ledger import Ledger
from privacy.securesum.terms import Terms


@dataclass(frozen=True)
class Policy(StatedPolicy):
    """What this site allows. Every default denies, or is the minimum given in docs/threats.md."""

    def check_session(
        self, program: Program, terms: Terms, *, today: date, text: str | None = None
    ) -> None:
        """Refuse, before the table is opened, everything requested that is not allowed.

        text: the session's program as it was received, which must be approved; None for a run's
        program, which follows from the session's.
        """
        checks = (
            self._expiry(today),
            self._approval(text),
            *self._algorithms(program),
            self._columns(program),
            self._privacy(terms),
            *self._readers(terms),
            self._unit(program),
            self._band(),
            self._colluders(terms, max(terms.min_cohort, self.least_cohort)),
            self._sums(sum(stage.sums for stage in declared(program)), "at most"),
            *self.recipes.problems(program),
        )
        _raise([problem for problem in checks if problem is not None])

    def check_spending(self, ledger: Ledger, releases: Sequence[Release]) -> None:
        """Refuse releases that cost more than this site's ledger has left."""
        try:
            ledger.affords(releases)
        except BudgetExceeded:
            raise refusals.budget_spent(ledger, ledger.after(releases).epsilon) from None

    def check_dictionary(self, program: Program) -> None:
        """Refuse a schema that does not contain this site's data dictionary; never reported."""
        _raise([*self.dictionary.problems(program.schema)])

    def check_table(
        self, program: Program, summary: TableSummary, *, session: Program | None = None
    ) -> None:
        """Refuse, before anything leaves, a program over too few of this hospital's rows.

        session: the session's program if this is a run's, which may lack the search that says
            whether the model that the run starts from can have two kernels.

        With differential privacy nothing is refused here: noise covers few rows as well as many,
        and a refusal that depends on the rows would reveal something that no ε is charged for.
        """
        if program.privacy is not None:
            return
        summed = [
            RowsInASum(parts, summary.rows_in(parts), stage, dealt_share(parts, program.held_out))
            for parts, stage in self._summed(program).items()
        ]
        _raise(
            [
                *(problem for own in summed for problem in self._rows(session or program, own)),
                *self._held_out(program, summary),
                *(problem for own in summed for problem in self._levels(summary, own)),
                *self.dictionary.outside(summary.ranges),
            ]
        )

    @staticmethod
    def _summed(program: Program) -> dict[frozenset[Part], str]:
        """Return the sets of parts that floors apply to: always training, and what is summed."""
        return {frozenset({Part.TRAINING}): "", **summed_together(program)}

    def check_cohort(self, confirmed: int) -> None:
        """Refuse a cohort with too few members whose keys are confirmed."""
        if confirmed < self.least_cohort:
            raise refusals.cohort_too_small(confirmed, least=self.least_cohort)

    def check_members(self, terms: Terms, members: int) -> None:
        """Refuse a run of `members` members whose terms tolerate too few colluders among them."""
        problem = self._colluders(terms, members)
        if problem is not None:
            raise problem

    def check_task(
        self, program: Program, stage: int, *, confirmed: int, sums: int, today: date
    ) -> None:
        """Refuse one sum at the door.

        sums: the vectors computed for exact sums of this data source, including this one.
        """
        expired = self._expiry(today)
        if expired is not None:
            raise expired
        _raise(self._algorithms(program, (stage,)))
        self.check_cohort(confirmed)
        too_many = self._sums(sums, "so far")
        # With differential privacy a sum that was lost is requested again, and charged again.
        if too_many is not None and program.privacy is None:
            raise too_many

    def check_changes(self, program: Program) -> None:
        """Refuse, without consent, a run that would sum this hospital's added and removed rows.

        With differential privacy noise covers them, and no consent is needed.
        """
        if program.privacy is not None:
            return
        for (algorithm, _), stage in zip(program.algorithms(), declared(program), strict=True):
            if stage.needs_consent and algorithm.NAME not in self.consents:
                raise refusals.consent_missing(algorithm.NAME)

    def allows_unmasked_samples(self, program: Program, *, today: date) -> bool:
        """Return whether the samples that a program requests may leave unmasked.

        If they may not, the run is not refused: the hospital is then not in the ensemble.
        """
        asks = open_stage(program) is not None and program.privacy is None
        return asks and self.open_ensemble and self._expiry(today) is None

    def check_parent(self, parent: str, *, obtained: bool) -> None:
        """Refuse a run from a model that this hospital neither obtained itself nor approved."""
        if not obtained and parent not in self.parents:
            raise refusals.parent_forbidden(parent)

    def check_ledger(
        self, ledger: DisclosureLedger, entering: EnteredRun, made_known: Known
    ) -> None:
        """Refuse a run by the disclosure ledger of the data source; never reported.

        With differential privacy the ledger of ε limits what becomes known, and here only runs and
        programs are limited.
        """
        after = ledger.with_run(entering)
        problems: list[PolicyRefusal] = []
        if after.runs > self.max_runs:
            problems.append(refusals.too_many_runs(after.runs, most=self.max_runs))
        if after.programs > self.max_programs:
            problems.append(refusals.too_many_programs(after.programs, most=self.max_programs))
        if not self.exact_and_private:
            if entering.exact and ledger.private:
                problems.append(refusals.exact_and_private("sums with noise"))
            if not entering.exact and ledger.exact:
                problems.append(refusals.exact_and_private("exact sums"))
        if entering.exact:
            problems += self._numbers(after, made_known)
            sums = ledger.vectors + entering.sums
            if sums > self.max_sums:
                problems.append(refusals.too_many_sums(sums, "at most", most=self.max_sums))
        _raise(problems)

    def _numbers(self, after: DisclosureLedger, made_known: Known) -> Iterator[PolicyRefusal]:
        limits = (
            ("the coordinator", "coordinator_ratio", after.coordinator),
            ("each hospital", "hospital_ratio", after.hospitals),
        )
        for whom, line, numbers in limits:
            ratio: float = getattr(self, line)
            if numbers > ratio * made_known.cells:
                yield refusals.too_many_numbers(
                    whom, numbers, line=line, ratio=ratio, made_known=made_known
                )

    def _approval(self, text: str | None) -> PolicyRefusal | None:
        digest = None if text is None else program_digest(text)
        if digest is None or digest in self.programs:
            return None
        return refusals.program_not_approved(digest)

    def _sums(self, sums: int, how: str) -> PolicyRefusal | None:
        if sums <= self.max_sums:
            return None
        return refusals.too_many_sums(sums, how, most=self.max_sums)

    def _expiry(self, today: date) -> PolicyRefusal | None:
        if self.expires is None or today <= self.expires:
            return None
        return refusals.expired(self.expires, today)

    def _algorithms(
        self, program: Program, stages: Sequence[int] | None = None
    ) -> list[PolicyRefusal]:
        asked: dict[str, str] = {}
        for stage in range(len(program.stages)) if stages is None else stages:
            own, *included = algorithms_of(program, stage)
            asked |= {own: own, **{name: asked.get(name, own) for name in included}}
        return [
            refusals.algorithm_forbidden(name, stage=stage)
            for name, stage in asked.items()
            if name not in self.algorithms
        ]

    def _columns(self, program: Program) -> PolicyRefusal | None:
        missing = [name for name in columns_read(program.schema) if name not in self.columns]
        return refusals.columns_forbidden(missing) if missing else None

    def _privacy(self, terms: Terms) -> PolicyRefusal | None:
        if terms.differential_privacy:
            unset = self.epsilon is None or self.delta is None
            return refusals.budget_missing() if unset else None
        return None if self.without_differential_privacy else refusals.privacy_required()

    def _readers(self, terms: Terms) -> Iterator[PolicyRefusal]:
        """Refuse terms under which the coordinator reads more of exact sums than is allowed."""
        if terms.differential_privacy:
            return
        if not terms.blind and not self.open_sums:
            yield refusals.open_sums_forbidden()
        if not terms.members_only and not self.served_model:
            yield refusals.served_model_forbidden()

    def _unit(self, program: Program) -> PolicyRefusal | None:
        """Refuse noise that covers rows, or other groups of rows, instead of patients."""
        own, asked = program.schema.patient, self.patient or self.dictionary.patient
        if program.privacy is None or asked is None or asked == own:
            return None
        return refusals.unit_forbidden(own, asked=asked)

    def _band(self) -> PolicyRefusal | None:
        waits = self.least_answer_s > 0
        return refusals.row_band_missing() if waits and self.row_band is None else None

    def _colluders(self, terms: Terms, members: int) -> PolicyRefusal | None:
        third = (members - 1) // 3
        least = third if self.least_colluders is None else self.least_colluders
        if terms.max_colluders >= least:
            return None
        why = f" (a third of the {members - 1} others)" if self.least_colluders is None else ""
        return refusals.too_few_colluders(terms.max_colluders, least=least, why=why)

    def _rows(self, program: Program, summed: RowsInASum) -> Iterator[PolicyRefusal]:
        if summed.nothing:
            return
        features, mixed = most_features(program), mixes_kernels(program)
        if summed.rows < self.least_rows:
            yield refusals.too_few_rows(summed, least=self.least_rows)
        least = self.rows_for_each_feature(trained=summed.trained)
        if summed.rows < least * features:
            yield refusals.too_few_rows_per_feature(summed, features, least=least, mixed=mixed)

    def _held_out(self, program: Program, summary: TableSummary) -> list[PolicyRefusal]:
        read = {part for stage in declared(program) for part in stage.reads}
        return [
            refusals.too_few_rows_held_out(rows, part, least=self.least_rows_held_out)
            for part, rows in summary.held_out_rows.items()
            if part in read and 0 < rows < self.least_rows_held_out
        ]

    def _levels(self, summary: TableSummary, summed: RowsInASum) -> list[PolicyRefusal]:
        return [
            refusals.rare_level(column, level, rows, least=self.least_level_rows, summed=summed)
            for column, levels in summary.level_rows_in(summed.parts).items()
            for level, rows in levels.items()
            if 0 < rows < self.least_level_rows
        ]


def _raise(problems: Sequence[PolicyRefusal]) -> None:
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise PolicyRefused(problems)


def policy_of(policy: Policy | str | Path | None) -> Policy:
    """Return a policy, read from a file if a path is given; None is the policy that denies all."""
    if policy is None:
        return Policy()
    return policy if isinstance(policy, Policy) else Policy.read(policy)
