"""What `veilgp check` prints of a table compared with a schema, by column, at home only."""

import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from client_sdk.readable import readable
from client_sdk.terminal.plain_table import table_lines

if TYPE_CHECKING:
    from client_sdk.tables.checking.report import ColumnReport, TableReport

LEVELS_SHOWN = 6
"""The most levels of a column that are listed."""
_LEAST_WIDTH = 120
"""In characters: without a terminal, lines are not broken at 80."""


def show(report: "TableReport") -> None:
    """Print a report: columns and outcomes to standard output, what to look at to the other."""
    typer.echo(f"{report.rows} rows")
    for line in _columns_of(report):
        typer.echo(line)
    for outcome in report.outcomes:
        typer.echo(readable(f"  {outcome}"))
    for sentence in _doubts(report):
        typer.echo(readable(f"- {sentence}"), err=True)
    if report.without_target:
        typer.echo(
            f"{report.without_target} of {report.rows} rows have no target, or not all of them: "
            "they are left out, and the number stays here."
        )
    if report.ignored:
        typer.echo(f"Not in the schema, and not read: {readable(', '.join(report.ignored))}")
    name = readable(report.name)
    if report.fits:
        fewest = report.fewest_level_rows
        levels = "" if fewest is None else f"; the rarest level has {fewest} rows"
        rows = report.rows - report.without_target
        typer.echo(f"{name} fits the schema: {rows} rows{levels}")
        return
    for misfit in report.misfits:
        typer.echo(readable(misfit.sentence), err=True)
        if misfit.cells:
            typer.echo(f"    {'; '.join(map(str, misfit.cells))}", err=True)
    typer.echo(f"{name} does not fit the schema.", err=True)


def _columns_of(report: "TableReport") -> Iterator[str]:
    misfits = {misfit.column for misfit in report.misfits}
    rows = []
    for own in report.columns:
        mark = "does not fit" if own.name in misfits else "look at it" if own.doubts else ""
        kind = own.kind if own.role == "feature" else f"{own.role} ({own.kind})"
        kind = own.role if own.role == own.kind else kind
        cells = own.name, kind, _missing(own), _content(own), _bounds(own), mark
        rows.append([readable(cell) for cell in cells])
    width = shutil.get_terminal_size((_LEAST_WIDTH, 24)).columns
    return table_lines(
        ("column", "kind", "missing", "range, or rows by level", "bounds", ""),
        rows,
        width=width if sys.stdout.isatty() else max(width, _LEAST_WIDTH),
        right={"missing"},
    )


def _missing(own: "ColumnReport") -> str:
    if not own.missing:
        return "0"
    coded = f", {own.coded} by code" if own.coded else ""
    return f"{100 * own.missing_rate:.1f} % ({own.missing}{coded})"


def _content(own: "ColumnReport") -> str:
    if own.least is not None and own.most is not None:
        unit = f" {own.unit}" if own.unit not in (None, "1") else ""
        return f"{own.least:g} to {own.most:g}{unit}"
    present = {level: rows for level, rows in own.levels.items() if rows}
    first = [f"{level!r} {rows}" for level, rows in [*present.items()][:LEVELS_SHOWN]]
    parts = [", ".join(first) + (" …" if len(present) > LEVELS_SHOWN else "")] if first else []
    if absent := len(own.levels) - len(present):
        parts.append(f"{absent} of {len(own.levels)} levels have no row")
    if own.other_levels:
        parts.append(f"other labels {own.other_levels}")
    return "; ".join(parts)


def _bounds(own: "ColumnReport") -> str:
    if own.lower is None and own.upper is None:
        return ""
    low, high = ("open" if end is None else f"{end:g}" for end in (own.lower, own.upper))
    return f"{low} to {high}"


def _doubts(report: "TableReport") -> Iterator[str]:
    from client_sdk.tables.draft_limits import FEW_ROWS

    for own in report.columns:
        for sentence in own.doubts:
            yield f"column {own.name!r}: {sentence}"
        if own.rare_levels and own.role == "feature":
            rare = ", ".join(f"{level!r} ({rows})" for level, rows in own.rare_levels.items())
            yield f"column {own.name!r}: fewer than {FEW_ROWS} rows have {rare}"
    for outcome in report.outcomes:
        for sentence in outcome.doubts():
            yield f"target {outcome.name!r}: {sentence}"
