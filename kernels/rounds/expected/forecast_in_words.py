"""The forecast of a private program in sentences, for admins and hospitals."""

from kernels.rounds.expected.forecast import (
    EXPLAINABLE,
    Expected,
    Forecast,
    Measure,
    forecast,
    least_rows_with_prospect,
)
from kernels.rounds.program import Program

WITHOUT_STATED_ROWS = 300, 1_000, 3_000, 10_000
"""The numbers of training rows that are forecast for if the program states none."""

_MOST_ROWS = 10_000_000


def forecasts(program: Program) -> tuple[Forecast, ...]:
    """Return the forecast for the stated least number of rows, or several if none is stated.

    None is stated where `least_rows` has its default. Without differential privacy there are none.
    """
    if program.privacy is None:
        return ()
    stated = program.least_rows != Program.least_rows
    rows = (program.least_rows,) if stated else WITHOUT_STATED_ROWS
    return tuple(forecast(program, rows=own) for own in rows)


def expected_in_words(program: Program) -> tuple[str, ...]:
    """Return sentences on what the model can be expected to achieve; none without noise."""
    found = forecasts(program)
    if not any(own.targets for own in found):
        return ()
    said = [_sentence(own) for own in found]
    low, middle, high = (f"{share:.0%}" for share in EXPLAINABLE)
    said.append(
        f"The first figure is for tables whose columns could explain {middle} of the variation, "
        f"those in brackets for {low} and {high}. It is a formula's, from the noise and the number "
        "of columns: nobody has looked at the rows."
    )
    if len(found) > 1:
        said.append(_needed(program))
    return tuple(said)


def _sentence(own: Forecast) -> str:
    targets = "; ".join(_target(each) for each in own.targets)
    return f"Expected with {own.rows:,} training rows over all hospitals: {targets}."


def _target(own: Expected) -> str:
    low, middle, high = (_number(own.measure, score) for score in own.scores)
    said = f"for {own.target}, {own.measure} {middle} ({low} to {high})"
    return said if own.has_prospect else f"{said}, NO BETTER THAN PREDICTING THE MEAN"


def _number(measure: Measure, score: float) -> str:
    return f"{score:.0%}" if measure is Measure.EXPLAINED else f"{score:.2f}"


def _needed(program: Program) -> str:
    least = least_rows_with_prospect(program, most=_MOST_ROWS)
    if least is None:
        return "With this noise no number of rows gives a model better than predicting the mean."
    return (
        "The session states no least number of training rows (least_rows). With fewer than about "
        f"{least:,} over all hospitals the model is expected to be no better than predicting the "
        "mean."
    )
