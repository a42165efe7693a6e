"""The site's own policy: it denies by default and overrides the session.

A hospital answers only what its policy allows, whatever the session says. An empty policy allows
nothing: a person at the hospital must list the algorithms and columns, the number of sums, whether
sums without differential privacy are allowed, and what the coordinator may read of these (sums,
model). `policy_draft` writes a policy that allows exactly what a session requests, with a comment
at each line, for that person to review. The texts of refusals are in `refusals`.

The default minimums are from docs/threats.md (A4, A12): with fewer rows than features the sums
*are* the data. The cohort counts members whose keys are confirmed.
"""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from pathlib import Path

from client_sdk.errors import PolicyFileError, PolicyRefusal, PolicyRefused
from client_sdk.gate import refusals
from client_sdk.gate.dictionary import Dictionary
from client_sdk.gate.recipes import Recipes
from client_sdk.gate.rows_in_a_sum import RowsInASum
from client_sdk.home.disclosures import DisclosureLedger, EnteredRun
from client_sdk.tables import TableSummary
from kernels.rounds.ensemble.open_ensemble import open_stage
from kernels.rounds.known import Known
from kernels.rounds.plan import (
    algorithms_of,
    columns_read,
    dealt_share,
    declared,
    summed_together,
)
from kernels.rounds.program import Program
from kernels.rounds.registry import ALGORITHMS
from kernels.rounds.site.site import Part
from kernels.rounds.sized import LEAST_ROWS, RATIO, ROWS_PER_FEATURE
from kernels.rounds.task import program_digest
from privacy.accounting.events import Release
from privacy.errors import BudgetExceeded, LedgerError
from privacy.ledger import Budget, Ledger
from privacy.securesum.terms import Terms

_FLAGS = (
    "without_differential_privacy",
    "open_sums",
    "served_model",
    "open_ensemble",
    "trust_first_use",
    "exact_and_private",
)
_COUNTS = (
    "least_rows",
    "least_rows_held_out",
    "least_level_rows",
    "max_sums",
    "max_runs",
    "max_programs",
)
_RATIOS = (
    "rows_per_feature",
    "rows_per_feature_held_out",
    "coordinator_ratio",
    "hospital_ratio",
)


@dataclass(frozen=True)
class Policy:
    """What this site allows. Every default denies, or is the minimum given in docs/threats.md."""

    least_cohort: int = 5
    """Minimum number of members with confirmed keys in every sum, including this hospital."""
    least_colluders: int | None = None
    """Minimum number of members that may collude with the coordinator and still learn only the sum.
    Without this line: a third of the other members, ⌊(n − 1)/3⌋ of n."""
    least_rows: int = LEAST_ROWS
    """Minimum number of rows of this hospital that are summed together: of its training rows and,
    if a stage sums held-out rows without the others (`completion`), of these as well."""
    least_rows_held_out: int = 5
    """Minimum number of rows in each part that is held out and scored, unless the part is empty.
    Where held-out rows are summed too, `least_rows` applies to them.
    Only their total leaves, but the other members may have no such rows, and the error for one
    patient reveals that patient's outcome."""
    rows_per_feature: float = ROWS_PER_FEATURE
    """Minimum number of training rows per feature of the kernel, in addition to the limits on
    numbers that become known."""
    rows_per_feature_held_out: float = 0.0
    """The same for held-out rows that a stage sums without the others. Without this line only
    `least_rows` applies to them, and hospitals that collude could test who is among them."""
    least_level_rows: int = 10
    """Minimum number of rows that are summed together for each level that occurs in a categorical
    column."""
    algorithms: tuple[str, ...] = ()
    """Algorithms whose sums are answered, also where another algorithm asks for them: a search
    trains its kernels by `exact`, and is refused without that."""
    columns: tuple[str, ...] = ()
    """Columns that these algorithms may read."""
    programs: tuple[str, ...] = ()
    """SHA-256 of the programs that are approved: only their sessions are joined."""
    parents: tuple[str, ...] = ()
    """Ids of models that a run may start from, besides those that this hospital obtained itself,
    and those that a quorum of members with confirmed keys has signed."""
    coordinator_ratio: float = RATIO
    """Maximum number of exact numbers that become known to the coordinator, over all sessions,
    divided by the cells of the other members' rows: rows that the program states × columns."""
    hospital_ratio: float = RATIO
    """The same for numbers that become known to each hospital."""
    max_sums: int = 0
    """Maximum number of vectors that are ever computed for exact sums of a data source, over all
    sessions; those that were abandoned count too."""
    max_runs: int = 10
    """Maximum number of runs over a data source, over all sessions."""
    max_programs: int = 10
    """Maximum number of distinct programs over a data source, over all sessions. A run that starts
    from another model is another program."""
    exact_and_private: bool = False
    """Whether one table may have exact sums and sums with noise. The difference between the two
    undoes the noise."""
    without_differential_privacy: bool = False
    """Whether exact sums, without noise, are allowed."""
    open_sums: bool = False
    """Whether the coordinator may read exact sums. Without this line they must be blind. Approving
    a program does not approve a session's terms, which the coordinator chooses: this line does, and
    the next one. With differential privacy noise covers sums and model, and neither is needed."""
    served_model: bool = False
    """Whether the coordinator may have the model of exact sums. Without this line the model must be
    for members only."""
    epsilon: float | None = None
    """With differential privacy: the maximum that may ever be spent on any one patient of a data
    source, over all sessions and coordinators, at `delta`. Nothing is spent unless both are set."""
    delta: float | None = None
    """The probability that the promise of `epsilon` does not cover."""
    patient: str | None = None
    """With differential privacy: the column that identifies the patient of a row, which a session
    must use as its unit. Without this line a session may treat each row as a separate patient; a
    patient with many rows is then covered by `epsilon` only for each row separately."""
    open_ensemble: bool = False
    """Whether a session that requests samples of this hospital's own model gets them, not masked.
    Without this line the hospital still takes part in the sums."""
    trust_first_use: bool = False
    """Whether a member's key counts as confirmed when it is seen for the first time. This gives up
    what rests on the group key: a member that the coordinator invented would hold it, and could
    forge totals."""
    least_answer_s: float = 0.05
    """Minimum time after which an answer leaves, in seconds; the times are measured for each stage
    (`answer_times`). 0 turns waiting off, and then the time of an answer depends on the rows."""
    row_band: int | None = None
    """A power of two, at least twice the rows: the number of rows that answer times are measured
    for, chosen once for a data source (`gate.row_band`). It is required unless nothing waits
    (`least_answer_s` = 0), because a value computed from the rows would show them."""
    expires: date | None = None
    """The last day on which anything is answered."""
    consents: tuple[str, ...] = ()
    """Names of the algorithms that may reveal this site's own numbers."""
    dictionary: Dictionary = field(default_factory=lambda: Dictionary({}))
    """What each column is: a session's schema must contain it. In a file: tables such as
    [dictionary.age], or the path of another file, relative to the policy."""
    recipes: Recipes = field(default_factory=Recipes)
    """The range of kernels, training and splits. In a file: the table [recipes]."""

    def __post_init__(self) -> None:
        for name in ("algorithms", "columns", "consents", "programs", "parents"):
            given = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, tuple | list):
                raise PolicyFileError(f"{name} must be a list of names, not {given!r:.60}")
            if not all(isinstance(each, str) and each for each in given):
                raise PolicyFileError(f"every name in {name} must be non-empty text")
            object.__setattr__(self, name, tuple(given))
        for name in ("least_cohort", "least_colluders", *_COUNTS):
            number = getattr(self, name)
            if name == "least_colluders" and number is None:
                continue
            if type(number) is not int or number < 0:
                raise PolicyFileError(
                    f"{name} must be an integer of at least 0, not {number!r:.60}"
                )
        if self.patient is not None and not (isinstance(self.patient, str) and self.patient):
            raise PolicyFileError(f"patient must be the name of a column, not {self.patient!r:.60}")
        for name in _RATIOS:
            number = getattr(self, name)
            if type(number) not in (int, float) or not 0 <= number < float("inf"):
                raise PolicyFileError(f"{name} must be a number of at least 0, not {number!r:.60}")
        if type(self.least_answer_s) not in (int, float) or not 0 <= self.least_answer_s <= 3600:
            raise PolicyFileError(
                f"least_answer_s must be a number from 0 to 3600, not {self.least_answer_s!r:.60}"
            )
        band = self.row_band
        if band is not None and (type(band) is not int or band < 1 or band & (band - 1)):
            raise PolicyFileError(f"row_band must be a power of two, not {band!r:.60}")
        if (self.epsilon is None) != (self.delta is None):
            raise PolicyFileError("epsilon and delta belong together: set both or neither")
        if self.epsilon is not None and self.delta is not None:
            try:
                Budget(self.epsilon, self.delta)
            except LedgerError as error:
                raise PolicyFileError(
                    f"epsilon and delta are not a valid budget: {error}"
                ) from error
        for name in _FLAGS:
            if type(getattr(self, name)) is not bool:
                raise PolicyFileError(f"{name} must be true or false")
        if not isinstance(self.dictionary, Dictionary) or not isinstance(self.recipes, Recipes):
            raise PolicyFileError("dictionary must be a Dictionary, and recipes must be Recipes")
        if self.expires is not None and (
            not isinstance(self.expires, date) or isinstance(self.expires, datetime)
        ):
            raise PolicyFileError("expires must be a date such as 2027-12-31, without quotes")
        for name in (*self.algorithms, *self.consents):
            if name not in ALGORITHMS:
                raise PolicyFileError(
                    f"unknown algorithm {name!r:.60}; the installed algorithms are "
                    f"{', '.join(sorted(ALGORITHMS))}"
                )

    @classmethod
    def from_toml(cls, text: str, *, folder: Path | None = None) -> "Policy":
        """Read a policy; an unknown line is an error: a misspelt one would silently deny.

        folder: the policy's folder, to which the path of a data dictionary is relative.
        """
        try:
            plain = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise PolicyFileError(f"this policy is not valid TOML: {error}") from error
        known = [own.name for own in fields(cls)]
        if unknown := [name for name in plain if name not in known]:
            raise PolicyFileError(
                f"this policy has unknown lines: {', '.join(map(repr, unknown))}; known lines are "
                f"{', '.join(known)}"
            )
        if "dictionary" in plain:
            plain["dictionary"] = _dictionary(plain["dictionary"], folder)
        if "recipes" in plain:
            plain["recipes"] = Recipes.of(plain["recipes"])
        return cls(**plain)

    @classmethod
    def read(cls, path: str | Path) -> "Policy":
        """Read a policy from a file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyFileError(f"cannot read the policy {str(path)!r}: {error}") from error
        return cls.from_toml(text, folder=Path(path).parent)

    # -- checks

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

    @property
    def budget(self) -> Budget:
        """What may be spent on any one patient of a data source."""
        if self.epsilon is None or self.delta is None:
            raise refusals.budget_missing()
        return Budget(self.epsilon, self.delta)

    def check_spending(self, ledger: Ledger, releases: Sequence[Release]) -> None:
        """Refuse releases that cost more than this site's ledger has left."""
        try:
            ledger.affords(releases)
        except BudgetExceeded:
            raise refusals.budget_spent(ledger, ledger.after(releases).epsilon) from None

    def check_dictionary(self, program: Program) -> None:
        """Refuse a schema that does not contain this site's data dictionary; never reported."""
        _raise([*self.dictionary.problems(program.schema)])

    def check_table(self, program: Program, summary: TableSummary) -> None:
        """Refuse, before anything leaves, a program over too few of this hospital's rows.

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
                *(problem for own in summed for problem in self._rows(program, own)),
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
        features = max(own.features for own in program.kernels)
        if summed.rows < self.least_rows:
            yield refusals.too_few_rows(summed, least=self.least_rows)
        least = self.rows_per_feature if summed.trained else self.rows_per_feature_held_out
        if summed.rows < least * features:
            yield refusals.too_few_rows_per_feature(summed, features, least=least)

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


def _dictionary(given: object, folder: Path | None) -> Dictionary:
    if not isinstance(given, str):
        return Dictionary.of(given)
    if folder is None and not Path(given).is_absolute():
        raise PolicyFileError(
            f"dictionary = {given!r:.60} is relative to the policy's file: read the policy from a "
            "file, or write [dictionary.COLUMN] tables"
        )
    return Dictionary.read((folder or Path()) / given)


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
