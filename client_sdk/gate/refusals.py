"""Texts of the policy's refusals: in full for the hospital, short for the coordinator.

Each function returns one refusal: what is requested and what the policy allows, the line that
would allow it, and the reason for the limit, for the person who might change it. The text for the
coordinator (`public_detail`) never contains a count of the hospital's own rows.
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
    ConsentNotGiven,
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

# -- what the session requests


def expired(last: date, today: date) -> PolicyExpired:
    """Return the refusal of everything after the policy's last day."""
    return PolicyExpired(
        f"The policy expired: it was valid until {last}, and today is {today}.",
        line="expires = a later date",
        because="The date was set so that the purpose is reviewed: check that it still holds.",
        public_detail="the site's policy has expired",
    )


def algorithm_forbidden(name: str) -> AlgorithmForbidden:
    """Return the refusal of an algorithm that is not listed."""
    return AlgorithmForbidden(
        f"The program runs {name!r}, which this site does not allow.",
        line=f"algorithms = [..., {json.dumps(name)}]",
        because="First read what it sends (`veilgp policy draft` describes it in words).",
        public_detail=f"the site does not allow the algorithm {name}",
    )


def columns_forbidden(missing: Sequence[str]) -> ColumnForbidden:
    """Return the refusal of columns that are not listed."""
    return ColumnForbidden(
        "The program reads columns that this site does not allow: "
        f"{', '.join(map(readable, missing))}.",
        line=f"columns = [..., {', '.join(map(quoted, missing))}]",
        because="A program should not read a column that its question does not need.",
        public_detail=f"the site does not allow the columns {', '.join(missing)}",
    )


def privacy_required() -> PrivacyRequired:
    """Return the refusal of exact sums."""
    return PrivacyRequired(
        "The session has no differential privacy, which this site does not allow.",
        line="without_differential_privacy = true",
        because="Exact sums can reveal to everyone who sees the model that a rare patient is in "
        "them; with few rows they can reveal more.",
        public_detail="the site does not allow sums without differential privacy",
    )


def unit_forbidden(own: str | None, *, asked: str) -> UnitForbidden:
    """Return the refusal of noise that covers `own` (rows, if None), not patients by `asked`."""
    unit = "each row" if own is None else f"all rows with one {readable(own)}"
    return UnitForbidden(
        f"The session's noise covers {unit}, but this site requires it to cover patients, "
        f"identified by {readable(asked)}.",
        line="no value for patient (delete that line)"
        if own is None
        else f"patient = {quoted(own)}",
        because="A patient with many rows would be covered only for each row separately, and more "
        "than epsilon could be spent on that patient.",
        public_detail="the site requires noise that covers patients, identified by another column",
    )


def shrinking_forbidden() -> ShrinkingForbidden:
    """Return the refusal of a session that may leave out members that stop responding."""
    return ShrinkingForbidden(
        "The session continues without members that stop responding, which this site does not "
        "allow.",
        line="allow_shrinking = true",
        because="A coordinator can always pretend that a hospital stopped responding. Without "
        "differential privacy, the sum with a hospital minus the sum without it is that "
        "hospital's own numbers.",
        public_detail="the site does not allow a session that gives up the steady-cohort rule",
    )


def too_few_colluders(colluders: int, *, least: int, why: str) -> TooFewColluders:
    """Return the refusal of terms that tolerate fewer than `least` colluders; `why` explains it."""
    return TooFewColluders(
        f"The session is safe against a coordinator that colludes with {colluders} members, but "
        f"this site requires {least}{why}.",
        line=f"least_colluders = {colluders}",
        because="With more colluders than the session tolerates, two sets of survivors can be "
        "certified, and one hospital's masks can be removed.",
        public_detail=f"the site requires sums that are safe against {least} colluding members, "
        f"and the session's tolerate {colluders}",
    )


def cohort_too_small(confirmed: int, *, least: int) -> CohortTooSmall:
    """Return the refusal of a sum over too few members."""
    return CohortTooSmall(
        f"The sum would include {confirmed} members with confirmed keys, but this site requires "
        f"at least {least}.",
        line=f"least_cohort = {confirmed}",
        because="In a small sum each member is a large part, and every other member can subtract "
        "its own numbers. If the keys of some members are not confirmed yet, pass a roster file "
        "or run `veilgp confirm`.",
        public_detail=f"the site requires at least {least} members with confirmed keys, and the "
        f"run has {confirmed}",
    )


def consent_missing(algorithm: str) -> ConsentNotGiven:
    """Return the refusal to sum rows to add or remove."""
    return ConsentNotGiven(
        f"This hospital has rows to add or remove. If no other hospital has any, the sum of "
        f"{algorithm!r} is the statistics of these rows alone: this site has not consented to "
        "that.",
        line=f"consents = [..., {json.dumps(algorithm)}]",
        because="Statistics of few rows reveal much about each patient among them.",
        public_detail=f"the site has not consented to {algorithm}",
    )


# -- how often


def too_many_sums(sums: int, how: str, *, most: int) -> TooManySums:
    """Return the refusal of more sums in a run than allowed; `how` is "at most" or "so far"."""
    return TooManySums(
        f"The run requests {sums} sums {how}, but this site allows {most}.",
        line=f"max_sums = {sums}",
        because="Every further exact sum is another equation about the same rows.",
        public_detail=f"the site allows {most} sums per run, and this run requests {sums}",
    )


def too_many_runs(runs: int, *, most: int) -> TooManyRuns:
    """Return the refusal of more runs over one table than allowed."""
    return TooManyRuns(
        f"This would be run {runs} of the session over this table, but this site allows {most}.",
        line=f"max_runs = {runs}",
        because="Every run requests all its sums again from another starting point: these are "
        "further exact equations about the same rows.",
        public_detail=f"the site allows {most} runs of a session over one table",
    )


def budget_missing() -> BudgetMissing:
    """Return the refusal to spend privacy budget when none is set."""
    return BudgetMissing(
        "The session has differential privacy, which spends privacy budget, but this site's "
        "policy sets no budget.",
        line="epsilon = 1.0 and delta = 1e-5, or the values that you choose",
        because="This is the maximum that is ever spent on any one patient of this table, over "
        "all sessions: once it is spent, nothing more leaves.",
        public_detail="the site has set no budget for sessions with differential privacy",
    )


def budget_spent(ledger: Ledger, after: float) -> BudgetSpent:
    """Return the refusal of a release that would bring this ledger's ε to `after`."""
    budget = ledger.budget
    return BudgetSpent(
        f"This would bring the budget spent on any one patient of this table to ε = {after:.4g} "
        f"at δ = {budget.delta:g}: {ledger.spent.epsilon:.4g} is already spent, and this site "
        f"allows {budget.epsilon:g}.",
        line=f"epsilon = {math.ceil(after * 100) / 100:g}",
        because="Spent budget cannot be recovered, so a higher limit is permanent.",
        public_detail="the site's own privacy budget does not cover this",
    )


# -- what the hospital's own table is


def too_few_rows(rows: int, *, least: int) -> TooFewRows:
    """Return the refusal to sum too few rows."""
    return TooFewRows(
        f"The table has {rows} training rows, but this site requires at least {least}.",
        line=f"least_rows = {rows}",
        because="Sums over few patients reveal much about each of them.",
        public_detail="the site's table has fewer rows than its policy requires",
    )


def too_few_rows_per_feature(rows: int, features: int, *, least: float) -> TooFewRowsPerFeature:
    """Return the refusal of sums that could determine the rows."""
    return TooFewRowsPerFeature(
        f"The table has {rows} training rows for {features} features of the kernel, but this site "
        f"requires at least {least:g} rows per feature.",
        line=f"rows_per_feature = {rows // max(features, 1)}",
        because="With fewer rows than features the sums of products determine the rows. It is "
        "better to ask for a session with fewer features.",
        public_detail="the site's table has fewer rows per feature of the kernel than its policy "
        "requires",
    )


def too_few_rows_held_out(rows: int, part: str, *, least: int) -> TooFewRowsHeldOut:
    """Return the refusal to score too few rows."""
    return TooFewRowsHeldOut(
        f"The table has {rows} rows for {part}, but this site requires at least {least}, or none.",
        line=f"least_rows_held_out = {rows}",
        because="A model's error on few patients reveals their outcomes. It is better to ask for "
        "a session that holds out a larger share, or none.",
        public_detail="the site has too few rows in a part that is held out",
    )


def rare_level(column: str, level: str, rows: int, *, least: int) -> RareLevel:
    """Return the refusal to sum a level with too few rows."""
    return RareLevel(
        f"Column {column!r} has {rows} training rows with the level {level!r}, but this site "
        f"requires at least {least}.",
        line=f"least_level_rows = {rows}",
        because="A level that few patients have singles them out in every sum. It is better to "
        "ask for a schema that merges it with another level.",
        public_detail=f"the site has too few rows with one level of {column!r}",
    )
