"""Texts of the policy's refusals: in full for the hospital, short for the coordinator.

Each function returns one refusal: what is requested and what the policy allows, what to ask for
instead, the line that would allow it, and the reason for the limit, for the person who might change
it. The text for the
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
    DictionaryMismatch,
    ExactAndPrivate,
    OpenSumsForbidden,
    ParentForbidden,
    PolicyExpired,
    PrivacyRequired,
    ProgramNotApproved,
    RareLevel,
    RecipeForbidden,
    RowBandMissing,
    ServedModelForbidden,
    TooFewColluders,
    TooFewRows,
    TooFewRowsHeldOut,
    TooFewRowsPerFeature,
    TooManyNumbers,
    TooManyPrograms,
    TooManyRuns,
    TooManySums,
    UnitForbidden,
)
from client_sdk.gate.rows_in_a_sum import RowsInASum
from client_sdk.readable import quoted, readable
from kernels.rounds.stated.numbers_known import MEMBERSHIP, Known
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


def algorithm_forbidden(name: str, *, stage: str) -> AlgorithmForbidden:
    """Return the refusal of an algorithm that is not listed, which a stage asks for."""
    within = "" if stage == name else f" in its stage {stage!r}"
    return AlgorithmForbidden(
        f"The program runs {name!r}{within}, which this site does not allow.",
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
        instead="Ask the session's admin for a session with differential privacy.",
        line="without_differential_privacy = true",
        because="Exact sums can reveal to everyone who sees the model that a rare patient is in "
        "them; with few rows they can reveal more.",
        public_detail="the site does not allow sums without differential privacy",
    )


def open_sums_forbidden() -> OpenSumsForbidden:
    """Return the refusal of exact sums that the coordinator can read."""
    return OpenSumsForbidden(
        "The session's sums are open: the coordinator would read every exact sum, which this site "
        "does not allow.",
        instead="Ask the session's admin for a session with blind sums, which only members can "
        "read, or with differential privacy.",
        line="open_sums = true",
        because="Every exact sum tells its reader something about who is in the tables.",
        public_detail="the site does not allow the coordinator to read sums without differential "
        "privacy: it needs a session with blind sums",
    )


def served_model_forbidden() -> ServedModelForbidden:
    """Return the refusal of a model of exact sums that the coordinator gets."""
    return ServedModelForbidden(
        "The coordinator would have the session's model, to serve predictions with it, which this "
        "site does not allow.",
        instead="Ask the session's admin for a session whose model is for members only, or with "
        "differential privacy.",
        line="served_model = true",
        because="The model contains exact sums over all members: whoever has it can test whether "
        "someone whose record they know is in the tables.",
        public_detail="the site does not allow the coordinator to have a model without "
        "differential privacy: it needs a session whose model is for members only",
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


def program_not_approved(digest: str) -> ProgramNotApproved:
    """Return the refusal of a session whose program is not listed."""
    return ProgramNotApproved(
        f"This site has not approved the session's program, {digest}.",
        line=f"programs = [..., {json.dumps(digest)}]",
        because="First read what it computes (`veilgp policy draft` describes it in words).",
        public_detail=f"the site has not approved the program {digest}",
    )


def row_band_missing() -> RowBandMissing:
    """Return the refusal to answer at times that nobody has chosen a row band for."""
    return RowBandMissing(
        "This site's policy does not say how many rows the times of answers are measured for.",
        line="row_band = a power of two, at least twice the rows of the table, such as 4096",
        because="The coordinator can tell it from when answers leave, so it must not follow from "
        "the rows: choose it once for a data source (`veilgp policy draft` proposes one).",
        public_detail="the site has not chosen a row band for its answer times",
    )


def parent_forbidden(parent: str) -> ParentForbidden:
    """Return the refusal of a run that starts from an unknown model."""
    return ParentForbidden(
        f"The run starts from the model {parent}, which this hospital did not obtain from a run "
        "that it took part in.",
        line=f"parents = [..., {json.dumps(parent)}]",
        because="A model of unknown origin can be made to single out patients.",
        public_detail=f"the site knows nothing about the model {parent}",
    )


# -- which recipes


def recipe(what: str, value: str, *, allowed: str, line: str) -> RecipeForbidden:
    """Return the refusal of a parameter outside its range; `line` is a line of [recipes]."""
    return RecipeForbidden(
        f"The program's {what} is {value}, but this site allows {allowed}.",
        line=f"{line} = a range that contains it, under [recipes]",
        because="Extreme parameters turn an algorithm into a question about single patients.",
        public_detail=f"the site allows {allowed} as {what}, and the program has {value}",
        name=line,
    )


def unbounded_kernel(architecture: str) -> RecipeForbidden:
    """Return the refusal of a kernel whose features have no bound."""
    return RecipeForbidden(
        f"The features of the program's kernel ({architecture}) have no bound, which this site "
        "never allows.",
        line="",
        because="One extreme row would dominate every sum: ask for a session with a kernel that "
        "ends in cos and sin.",
        public_detail=f"the site does not allow kernels with unbounded features ({architecture})",
    )


def public_set_forbidden(digest: str) -> RecipeForbidden:
    """Return the refusal of a public table that is not listed."""
    return RecipeForbidden(
        f"The program uses the public table {digest}, which this site has not approved.",
        line=f"public_sets = [..., {json.dumps(digest)}], under [recipes]",
        because="Every row of it is a question to a model of this hospital's rows: check that it "
        "is a real public table, without rows that resemble single patients.",
        public_detail=f"the site has not approved the public table {digest}",
        name="public_sets",
    )


# -- the site's data dictionary: these are never reported


def _mismatch(sentence: str, line: str, because: str) -> DictionaryMismatch:
    return DictionaryMismatch(
        sentence,
        line=line,
        because=because,
        public_detail="the schema does not fit the site's data dictionary",
    )


_NOT_SENT = "The dictionary and this refusal stay at this hospital."


def not_in_dictionary(column: str) -> DictionaryMismatch:
    """Return the refusal of a column that the dictionary lacks."""
    return _mismatch(
        f"The program reads the column {column!r}, which the data dictionary lacks.",
        f"a table [dictionary.{quoted(column)}] (`veilgp policy draft` writes one)",
        _NOT_SENT,
    )


def not_the_patient(column: str) -> DictionaryMismatch:
    """Return the refusal of a patient column that is none according to the dictionary."""
    return _mismatch(
        f"The session identifies patients by {column!r}, but the data dictionary does not.",
        f"patient = true under [dictionary.{quoted(column)}]",
        _NOT_SENT,
    )


def other_kind(column: str, kind: str) -> DictionaryMismatch:
    """Return the refusal of a column of another kind."""
    return _mismatch(
        f"The session's schema says that {column!r} is {kind}, but the data dictionary does not.",
        f"another entry [dictionary.{quoted(column)}]",
        _NOT_SENT,
    )


def other_unit(column: str, unit: str, *, own: str) -> DictionaryMismatch:
    """Return the refusal of another unit."""
    return _mismatch(
        f"The session's schema has {column!r} in {readable(unit)}, but the data dictionary has it "
        f"in {readable(own)}.",
        f"unit = {quoted(unit)} under [dictionary.{quoted(column)}], if that is the table's unit",
        _NOT_SENT,
    )


Bounds = tuple[float | None, float | None]


def bounds_too_narrow(column: str, bounds: Bounds, *, own: Bounds) -> DictionaryMismatch:
    """Return the refusal of bounds that do not contain those of the dictionary."""
    asked, here = (
        f"[{'−∞' if low is None else f'{low:g}'}, {'∞' if high is None else f'{high:g}'}]"
        for low, high in (bounds, own)
    )
    return _mismatch(
        f"The session's schema bounds {column!r} to {asked}, which does not contain {here}, the "
        "bounds in the data dictionary.",
        "",
        f"Ask for a session whose bounds of {column!r} contain {here}. Narrow bounds around values "
        "that someone knows put single patients apart from all "
        f"others. {_NOT_SENT}",
    )


def levels_missing(column: str, missing: Sequence[str]) -> DictionaryMismatch:
    """Return the refusal of a schema that lacks levels of the dictionary."""
    return _mismatch(
        f"The session's schema of {column!r} lacks the levels "
        f"{', '.join(map(readable, missing))} of the data dictionary.",
        "",
        "Ask for a session whose schema lists them. A schema that merges levels of its choice puts "
        "the patients of the others apart. "
        f"{_NOT_SENT}",
    )


def codes_missing(column: str, codes: Sequence[float | str]) -> DictionaryMismatch:
    """Return the refusal of a schema that reads missing cells of this site as values."""
    return _mismatch(
        f"The session's schema of {column!r} lacks the missing codes {_codes(codes)} of the data "
        "dictionary.",
        "",
        "Ask for a session whose schema lists them: otherwise these cells would be read as values, "
        f"or keep the table from the session. {_NOT_SENT}",
    )


def codes_not_in_dictionary(column: str, codes: Sequence[float | str]) -> DictionaryMismatch:
    """Return the refusal of missing codes that could be values at this site."""
    return _mismatch(
        f"The session's schema of {column!r} reads {_codes(codes)} as missing, which could be a "
        "value by the data dictionary.",
        f"missing_codes = [..., {_codes(codes)}] under [dictionary.{quoted(column)}], if such "
        "cells are missing ones here",
        f"Calling a value missing puts the patients who have it apart from all others. {_NOT_SENT}",
    )


def _codes(codes: Sequence[float | str]) -> str:
    return ", ".join(quoted(code) if isinstance(code, str) else f"{code:g}" for code in codes)


def table_outside_dictionary(column: str) -> DictionaryMismatch:
    """Return the refusal of a table with values outside the dictionary."""
    return _mismatch(
        f"The table has values in {column!r} outside the bounds of the data dictionary.",
        "bounds that contain them (`veilgp policy draft` proposes some)",
        f"A dictionary that does not fit its table protects nothing. {_NOT_SENT}",
    )


# -- how often


def too_many_sums(sums: int, how: str, *, most: int) -> TooManySums:
    """Return the refusal of more sums than allowed; `how` is "at most" or "so far"."""
    return TooManySums(
        f"This data source would be in {sums} exact sums {how}, but this site allows {most}, over "
        "all sessions and with sums that were abandoned.",
        line=f"max_sums = {sums}",
        because="Every further exact sum is another equation about the same rows.",
        public_detail=f"the site allows at most {most} sums",
    )


def too_many_runs(runs: int, *, most: int) -> TooManyRuns:
    """Return the refusal of more runs over one table than allowed."""
    return TooManyRuns(
        f"This would be run {runs} over this data source, but this site allows {most}, over all "
        "sessions.",
        line=f"max_runs = {runs}",
        because="Every run requests all its sums again from another starting point: these are "
        "further exact equations about the same rows.",
        public_detail=f"the site allows {most} runs over a data source",
    )


def too_many_programs(programs: int, *, most: int) -> TooManyPrograms:
    """Return the refusal of more distinct programs over a data source than allowed."""
    return TooManyPrograms(
        f"This would be program {programs} over this data source, but this site allows {most}, "
        "over all sessions.",
        line=f"max_programs = {programs}",
        because="Every further program is another set of equations about the same rows.",
        public_detail=f"the site allows {most} programs over a data source",
    )


def too_many_numbers(
    whom: str, numbers: int, *, line: str, ratio: float, made_known: Known
) -> TooManyNumbers:
    """Return the refusal of more numbers than allowed; `whom` would know them."""
    cells = made_known.cells
    return TooManyNumbers(
        f"{numbers:,} numbers about this data source would become known to {whom}, over all "
        f"sessions. The other members' rows have {cells:,.0f} cells ({made_known.rows:,.0f} rows "
        f"that the program states × {made_known.columns} columns), and this site allows {ratio:g} "
        "numbers per cell.",
        instead="Ask for a session with fewer features or steps, with more rows, or with "
        "differential privacy.",
        line=f"{line} = {rounded_up(numbers / cells):g}",
        because=f"That is {numbers / made_known.rows:.3g} numbers per row. {MEMBERSHIP}",
        public_detail="more would become known than the site allows",
    )


def rounded_up(ratio: float) -> float:
    """Return a number rounded up to two significant digits.

    >>> rounded_up(0.5021), rounded_up(1234)
    (0.51, 1300.0)
    """
    step = 10.0 ** (math.floor(math.log10(ratio)) - 1)
    return float(f"{math.ceil(ratio / step - 1e-9) * step:.3g}")


def exact_and_private(other: str) -> ExactAndPrivate:
    """Return the refusal of exact and private sums of one table; `other` are the earlier ones."""
    return ExactAndPrivate(
        f"This table has already been in {other}.",
        line="exact_and_private = true",
        because="An exact sum minus a noisy one is the noise, which then protects nobody.",
        public_detail="the site does not allow this for its table",
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


def too_few_rows(summed: RowsInASum, *, least: int) -> TooFewRows:
    """Return the refusal to sum too few rows."""
    return TooFewRows(
        f"The table has {summed.rows} {summed.words}{summed.summed}, but this site requires at "
        f"least {least} in such a sum."
        if summed.summed
        else f"The table has {summed.rows} training rows, but this site requires at least {least}.",
        instead=summed.instead(least=least),
        line=f"least_rows = {summed.rows}",
        because="Sums over few patients reveal much about each of them.",
        public_detail="the site's table has fewer rows than its policy requires",
    )


def too_few_rows_per_feature(
    summed: RowsInASum, features: int, *, least: float, mixed: bool
) -> TooFewRowsPerFeature:
    """Return the refusal of sums that could determine the rows.

    features: of both kernels if two may be mixed (`mixed`).
    """
    most, line = int(summed.rows / least), "rows_per_feature"
    line += "" if summed.trained else "_held_out"
    fewer = f"at most {most:,} features (max_features, or smallest_table)"
    fewer += ", or without mixing (blend = false in its search)" if mixed else ""
    return TooFewRowsPerFeature(
        f"With {summed.rows} {summed.words}{summed.summed} this site allows at most {most:,} "
        f"features, {least:g} rows for each; the program has {features}"
        f"{', of two kernels that it may mix' if mixed else ''}.",
        instead=summed.instead(least=least * features, fewer=fewer),
        line=f"{line} = {math.floor(100 * summed.rows / max(features, 1)) / 100:g}",
        because="With fewer rows than features the sums of products determine the rows.",
        public_detail="the site's table has fewer rows per feature of the kernel than its policy "
        "requires",
    )


def too_few_rows_held_out(rows: int, part: str, *, least: int) -> TooFewRowsHeldOut:
    """Return the refusal to score too few rows."""
    return TooFewRowsHeldOut(
        f"The table has {rows} rows for {part}, but this site requires at least {least}, or none.",
        instead="Ask for a session that holds out a larger share, or none.",
        line=f"least_rows_held_out = {rows}",
        because="A model's error on few patients reveals their outcomes.",
        public_detail="the site has too few rows in a part that is held out",
    )


def rare_level(column: str, level: str, rows: int, *, least: int, summed: RowsInASum) -> RareLevel:
    """Return the refusal to sum a level with too few rows."""
    merged = "a schema that merges the level with another one"
    return RareLevel(
        f"Column {column!r} has {rows} {summed.words} with the level {level!r}{summed.summed}, but "
        f"this site requires at least {least}.",
        instead=summed.instead(least=0, fewer=merged),
        line=f"least_level_rows = {rows}",
        because="A level that few patients have singles them out in every sum.",
        public_detail=f"the site has too few rows with one level of {column!r}",
    )
