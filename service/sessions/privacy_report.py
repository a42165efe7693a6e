"""What a session promises about privacy, what it has spent, and what another run would cost.

Everything here follows from the session's terms, its program and its ledger: no figure is a site's.
"""

from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import Connection

from kernels.model.card_sections import explained
from kernels.rounds.plan import release_plan
from kernels.rounds.program import Program
from privacy.accounting.cost import cost
from privacy.accounting.events import MECHANISM
from privacy.accounting.promises import promised
from privacy.ledger import Ledger
from service.http.times import iso_time
from service.sessions import ledgers, sessions
from service.sessions.sessions import Session

_POINTS = 20
"""Of the curve of ε."""


@dataclass(frozen=True)
class Budget:
    """What may be spent on any one unit, in all; ε at this δ.

    run_costs: what one training run costs if it were the first and none of its sums is lost.
    """

    epsilon: float
    delta: float
    runs: int
    run_costs: float


@dataclass(frozen=True)
class Charged:
    """One sum that was begun: which, over which part of the tables, with how much noise."""

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
    """ε after so many sums."""

    at: str
    sums: int
    epsilon: float


@dataclass(frozen=True)
class PrivacyReport:
    """What a session promises, and what it has spent.

    unit: whose presence the noise hides; a patient with at most `max_rows_per_patient` rows.
    max_colluders, min_cohort: the noise of `honest` members, their difference, is counted on.
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
    """Which proof gives the least ε."""
    after_another_run: float | None
    """ε if the session's program ran once more."""
    over_time: list[Spent]
    releases: list[Charged]


def budget_of(session: Session) -> Budget | None:
    """Give what a session may spend; None without differential privacy."""
    if session.epsilon is None or session.delta is None:
        return None
    program = Program.from_json(session.program)
    once = promised(release_plan(program, session.seed), honest=session.terms.honest)
    return Budget(
        epsilon=session.epsilon,
        delta=session.delta,
        runs=session.planned_runs or 1,
        run_costs=cost(once, delta=session.delta).epsilon,
    )


def report(connection: Connection, session_id: str) -> PrivacyReport:
    """Give the report of a session."""
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
            unit, terms.min_cohort, terms.max_colluders, session.epsilon, session.delta
        ),
        mechanism=None if ledger is None else MECHANISM,
        budget=budget_of(session),
        spent=None if ledger is None else ledger.spent.epsilon,
        accountant=None if ledger is None else ledger.spent.accountant,
        after_another_run=None
        if ledger is None
        else ledger.after(
            promised(release_plan(program, session.seed), honest=terms.honest)
        ).epsilon,
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
    """Give how ε grew, at some of the sums and at the last."""
    return [
        Spent(at=iso_time(then.entries[-1].at), sums=sums, epsilon=_spent(then))
        for sums, then in ledger.history(_POINTS)
    ]


@lru_cache(maxsize=512)
def _spent(ledger: Ledger) -> float:
    """Give what a ledger has spent: of sums over samples a tenth of a second's work."""
    return ledger.spent.epsilon
