"""What a site's policy says when it refuses: to the hospital all of it, to the coordinator little.

Each function gives one refusal: what is asked for and what the policy allows, the line that would
allow it, and why the line is as it is, for the person who might change it. What the coordinator
hears (`public_detail`) has no number of the hospital's own rows in it.
"""

import json
import math
from collections.abc import Sequence
from datetime import date

from client_sdk.errors import (
    AlgorithmForbidden,
    BudgetMissing,
    BudgetSpent,
    CohortTooSmall,
    ColumnForbidden,
    ConsentMissing,
    PolicyExpired,
    PrivacyRequired,
    RareLevel,
    ShrinkingForbidden,
    TooFewColluders,
    TooFewRows,
    TooFewRowsHeldOut,
    TooFewRowsPerFeature,
    TooManyRuns,
    TooManySums,
    UnitForbidden,
)
from client_sdk.readable import quoted, readable
from privacy.ledger import Ledger

# -- what the session asks for


def expired(last: date, today: date) -> PolicyExpired:
    """Refuse everything after the last day."""
    return PolicyExpired(
        f"The policy was valid until {last}, and it is {today}.",
        line="expires = a later date",
        because="Whoever set the date wanted the question asked again: does the purpose still "
        "hold?",
        public_detail="the site's policy has expired",
    )


def algorithm_forbidden(name: str) -> AlgorithmForbidden:
    """Refuse an algorithm that is not listed."""
    return AlgorithmForbidden(
        f"The program runs {name!r}, which this site does not allow.",
        line=f"algorithms = [..., {json.dumps(name)}]",
        because="Read first what it sends (`veilgp policy draft` says it in words).",
        public_detail=f"the site does not allow the algorithm {name}",
    )


def columns_forbidden(missing: Sequence[str]) -> ColumnForbidden:
    """Refuse columns that are not listed."""
    return ColumnForbidden(
        "The program reads columns that this site does not allow: "
        f"{', '.join(map(readable, missing))}.",
        line=f"columns = [..., {', '.join(map(quoted, missing))}]",
        because="A column that the question does not need should not be in the program.",
        public_detail=f"the site does not allow the columns {', '.join(missing)}",
    )


def privacy_required() -> PrivacyRequired:
    """Refuse exact sums."""
    return PrivacyRequired(
        "The session has no differential privacy, and this site does not allow that.",
        line="without_differential_privacy = true",
        because="Exact sums can show that a rare patient is in them, to everyone who sees the "
        "model; with few rows they can show more.",
        public_detail="the site does not allow sums without differential privacy",
    )


def unit_forbidden(own: str | None, *, asked: str) -> UnitForbidden:
    """Refuse noise that covers `own` (rows, if None) where patients by `asked` are to be."""
    unit = "each row" if own is None else f"all rows with one {readable(own)}"
    return UnitForbidden(
        f"The session's noise covers {unit}, and this site asks for patients, by "
        f"{readable(asked)}.",
        line="no patient" if own is None else f"patient = {quoted(own)}",
        because="A patient with many rows would be covered for each of them only, and epsilon "
        "would not be what is spent on a patient.",
        public_detail="the site asks for noise that covers patients, by another column",
    )


def shrinking_forbidden() -> ShrinkingForbidden:
    """Refuse a session that may leave silent members out."""
    return ShrinkingForbidden(
        "The session goes on without members that fall silent, and this site does not allow that.",
        line="allow_shrinking = true",
        because="A coordinator can always pretend that a hospital fell silent. Without "
        "differential privacy the sum with it minus the sum without it is that hospital's own.",
        public_detail="the site does not allow a session that gives the steady-cohort rule up",
    )


def too_few_colluders(colluders: int, *, least: int, why: str) -> TooFewColluders:
    """Refuse terms that fewer colluders break than this site asks for; `why` so many."""
    return TooFewColluders(
        f"The session is safe from a coordinator that works together with {colluders} members, "
        f"and this site asks for {least}{why}.",
        line=f"least_colluders = {colluders}",
        because="With more colluders than that, two sets of survivors can be certified, and the "
        "masks of one hospital come off.",
        public_detail=f"the site asks for sums that are safe from {least} colluding members, and "
        f"the session's are from {colluders}",
    )


def cohort_too_small(confirmed: int, *, least: int) -> CohortTooSmall:
    """Refuse to be summed with few others."""
    return CohortTooSmall(
        f"{confirmed} members with confirmed keys would be summed, and this site asks for {least}.",
        line=f"least_cohort = {confirmed}",
        because="In a small sum each member is a large part, and every other member can subtract "
        "its own. If members are missing because their keys are not confirmed, give a roster file "
        "or run `veilgp confirm`.",
        public_detail=f"the site asks for at least {least} members with confirmed keys, and the "
        f"run has {confirmed}",
    )


def consent_missing(algorithm: str) -> ConsentMissing:
    """Refuse to have rows to add or remove summed."""
    return ConsentMissing(
        f"This hospital has rows to add or remove, and where it alone has, the sum of "
        f"{algorithm!r} is their statistics: this site has not consented to that.",
        line=f"consents = [..., {json.dumps(algorithm)}]",
        because="Few rows say much about each patient among them.",
        public_detail=f"the site has not consented to {algorithm}",
    )


# -- how often


def too_many_sums(sums: int, how: str, *, most: int) -> TooManySums:
    """Refuse a sum more in a run; `how`: at most, or so far."""
    return TooManySums(
        f"The run asks for {sums} sums {how}, and this site allows {most}.",
        line=f"max_sums = {sums}",
        because="Every further exact sum is an equation about the same rows.",
        public_detail=f"the site allows {most} sums in a run, and this one asks for {sums}",
    )


def too_many_runs(runs: int, *, most: int) -> TooManyRuns:
    """Refuse a run more over one table."""
    return TooManyRuns(
        f"This would be the session's run {runs} over this table, and this site allows {most}.",
        line=f"max_runs = {runs}",
        because="Every run asks for all its sums again, from another start: further exact "
        "equations about the same rows.",
        public_detail=f"the site allows {most} runs of a session over one table",
    )


def budget_missing() -> BudgetMissing:
    """Refuse to spend where nobody has said how much."""
    return BudgetMissing(
        "The session has differential privacy, which spends a part of a budget, and this site has "
        "set none.",
        line="epsilon = 1.0 and delta = 1e-5, or what you decide",
        because="It is the most that is ever spent on any one patient of this table, over all "
        "sessions: from then on nothing leaves.",
        public_detail="the site has set no budget for sessions with differential privacy",
    )


def budget_spent(ledger: Ledger, after: float) -> BudgetSpent:
    """Refuse what would bring this ledger's ε to `after`."""
    budget = ledger.budget
    return BudgetSpent(
        f"This would bring what is spent on any one patient of this table to ε = {after:.4g} at "
        f"δ = {budget.delta:g}: {ledger.spent.epsilon:.4g} is spent, and this site allows "
        f"{budget.epsilon:g}.",
        line=f"epsilon = {math.ceil(after * 100) / 100:g}",
        because="What was spent does not come back, so this is for good.",
        public_detail="the site's own privacy budget does not cover this",
    )


# -- what the hospital's own table is


def too_few_rows(rows: int, *, least: int) -> TooFewRows:
    """Refuse to have few rows summed."""
    return TooFewRows(
        f"The table has {rows} training rows, and this site asks for {least}.",
        line=f"least_rows = {rows}",
        because="Sums over few patients say much about each.",
        public_detail="the site's table has fewer rows than its policy asks for",
    )


def too_few_rows_per_feature(rows: int, features: int, *, least: float) -> TooFewRowsPerFeature:
    """Refuse sums that determine the rows."""
    return TooFewRowsPerFeature(
        f"The table has {rows} training rows for {features} features of the kernel, and this site "
        f"asks for {least:g} rows a feature.",
        line=f"rows_per_feature = {rows // max(features, 1)}",
        because="With fewer rows than features the sums of products determine the rows. Ask for a "
        "session with fewer features instead.",
        public_detail="the site's table has fewer rows for each feature of the kernel than its "
        "policy asks for",
    )


def too_few_rows_held_out(rows: int, part: str, *, least: int) -> TooFewRowsHeldOut:
    """Refuse to have few rows scored."""
    return TooFewRowsHeldOut(
        f"The table has {rows} rows for {part}, and this site asks for {least}, or none.",
        line=f"least_rows_held_out = {rows}",
        because="The error of a model on few patients says what became of them. Ask for a session "
        "that holds a larger share out, or none.",
        public_detail="the site has too few rows in a part that is held out",
    )


def rare_level(column: str, level: str, rows: int, *, least: int) -> RareLevel:
    """Refuse to have a level summed that few rows have."""
    return RareLevel(
        f"Column {column!r} has {rows} training rows with the level {level!r}, and this site asks "
        f"for {least}.",
        line=f"least_level_rows = {rows}",
        because="A level that few patients have singles them out in every sum. Ask for a schema "
        "that joins it with another level.",
        public_detail=f"the site has too few rows of a level of {column!r}",
    )
