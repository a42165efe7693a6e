"""A session's privacy report: what it promises, what it has spent, what another run would cost.

Everything follows from the session's terms, its program and its ledger: no number describes a
single site.
"""

from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import Connection

from kernels.model.card_sections import explained
from kernels.rounds.plan import release_plan
from kernels.rounds.program import Program
from privacy.accounting.events import MECHANISM
from privacy.accounting.filters import Filter
from privacy.accounting.promises import promised
from privacy.ledger import Ledger
from service.http.times import iso_time
from service.sessions import ledgers, sessions
from service.sessions.sessions import Session

_POINTS = 20
"""Points of the curve of ε."""


@dataclass(frozen=True)
class Budget:
    """The most that may be spent on any one unit in total: ε at this δ.

    run_costs: the ε of one training run if it is the first and none of its sums is lost.
    """

    epsilon: float
    delta: float
    runs: int
    run_costs: float


@dataclass(frozen=True)
class Charged:
    """One charged sum: its statistic, the part of the tables, the amount of noise."""

    at: str
    run: str
    epoch: int
    sum: int
    statistic: str
    part: str
    numbers: int
    multiplier: float
    sampling_rate: float


@dataclass(frozen=True)
class Spent:
    """The spent ε after a number of sums."""

    at: str
    sums: int
    epsilon: float


@dataclass(frozen=True)
class PrivacyReport:
    """What a session promises and what it has spent.

    unit: what the noise hides, a row, or a patient with at most `max_rows_per_patient` rows.
    honest: min_cohort − max_colluders, the number of members whose noise is counted.
    """

    differential_privacy: bool
    unit: str
    max_rows_per_patient: int | None
    min_cohort: int
    max_colluders: int
    honest: int
    meaning: str
    mechanism: str | None
    budget: Budget | None
    spent: float | None
    accountant: str | None
    """Which of the budget's two accountants allows more."""
    after_another_run: float | None
    """The total ε if the session's program ran once more."""
    over_time: list[Spent]
    releases: list[Charged]


def budget_of(session: Session) -> Budget | None:
    """Return a session's budget; None without differential privacy."""
    if session.epsilon is None or session.delta is None:
        return None
    program = Program.from_json(session.program)
    once = promised(release_plan(program), honest=session.terms.honest)
    return Budget(
        epsilon=session.epsilon,
        delta=session.delta,
        runs=session.planned_runs or 1,
        run_costs=Filter(session.epsilon, session.delta).spent(once).epsilon,
    )


def report(connection: Connection, session_id: str) -> PrivacyReport:
    """Return the report of a session."""
    session = sessions.find(connection, session_id)
    program, terms = Program.from_json(session.program), session.terms
    unit = "row" if program.schema.patient is None else "patient"
    ledger = ledgers.load(connection, session_id)
    entries = () if ledger is None else ledger.entries
    return PrivacyReport(
        differential_privacy=terms.differential_privacy,
        unit=unit,
        max_rows_per_patient=None
        if program.privacy is None
        else program.privacy.max_rows_per_patient,
        min_cohort=terms.min_cohort,
        max_colluders=terms.max_colluders,
        honest=terms.honest,
        meaning=explained(
            unit,
            terms.min_cohort,
            terms.max_colluders,
            session.epsilon,
            session.delta,
            blind=terms.blind,
        ),
        mechanism=None if ledger is None else MECHANISM,
        budget=budget_of(session),
        spent=None if ledger is None else ledger.spent.epsilon,
        accountant=None if ledger is None else ledger.spent.accountant,
        after_another_run=None
        if ledger is None
        else ledger.after(promised(release_plan(program), honest=terms.honest)).epsilon,
        over_time=[] if ledger is None else over_time(ledger),
        releases=[
            Charged(
                at=iso_time(entry.at),
                run=entry.run,
                epoch=entry.epoch,
                sum=entry.slot,
                statistic=entry.release.statistic,
                part=entry.release.part,
                numbers=entry.release.dimension,
                multiplier=entry.release.multiplier,
                sampling_rate=entry.release.sampling_rate,
            )
            for entry in entries
        ],
    )


def over_time(ledger: Ledger) -> list[Spent]:
    """Return the spent ε after some of the sums and after the last."""
    return [
        Spent(at=iso_time(then.entries[-1].at), sums=sums, epsilon=_spent(then))
        for sums, then in ledger.history(_POINTS)
    ]


@lru_cache(maxsize=512)
def _spent(ledger: Ledger) -> float:
    """Return the spent ε of a ledger; cached, since subsampled sums take about 0.1 s to account."""
    return ledger.spent.epsilon
