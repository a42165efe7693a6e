"""The row band of a data source: the number of rows that its answer times are measured for.

Whoever sees when answers leave can tell the band from them (`answer_times`). So it is a power of
two that an operator chooses, once for a data source: the policy's line `row_band`. It is at least
twice the rows when the source is first used, and then kept in the home. It is never computed from
the rows at a join, nor for a program, and does not change because rows are added: a time that
followed from the rows could be placed by a program at a chosen row count. A policy with another
value than the home's is refused until a named person has changed the home's (`veilgp row-band`); a
table that outgrows its band is refused before a run is entered, at home.

A draft proposes a band, because it is written at home and read by a person. It proposes powers of
four from LEAST on and nothing in between: 4,096 for at most 2,048 rows, 16,384 for at most 8,192.
"""

from dataclasses import dataclass

from client_sdk.errors import OutgrewRowBand, RowBandChanged
from client_sdk.home.store import Store
from client_sdk.tables.schema_stream import count_rows

LEAST = 4096
"""The smallest band that is proposed: all small hospitals have the same."""
_STEP = 4


@dataclass(frozen=True)
class ProposedBand:
    """A value of `row_band` for a draft, and where it comes from, as a sentence."""

    rows: int
    because: str

    @classmethod
    def for_table(cls, rows: int) -> "ProposedBand":
        """Propose the first step that is at least twice the rows of a table."""
        return cls(
            step_for(rows),
            f"Proposed for this table, in steps: {_words(LEAST)}, {_words(LEAST * _STEP)} …",
        )

    @classmethod
    def of_home(cls, band: int) -> "ProposedBand":
        """Propose what was chosen before."""
        return cls(band, "It is the one that this home has for the data source.")

    @classmethod
    def smallest(cls) -> "ProposedBand":
        """Propose the first step, without looking at any table."""
        return cls(
            LEAST,
            f"No table was looked at: this is {_words(LEAST)}. For more rows choose more.",
        )


def step_for(rows: int) -> int:
    """Return the first step that is at least twice as many rows.

    >>> [step_for(rows) for rows in (0, 2048, 2049, 8192, 8193)]
    [4096, 4096, 16384, 16384, 65536]
    """
    band = LEAST
    while band < 2 * rows:
        band *= _STEP
    return band


def proposed(store: Store, source: str, table: object = None) -> ProposedBand:
    """Propose the band that the home has, else one for a table, else the smallest."""
    kept = store.row_band(source)
    if kept is not None:
        return ProposedBand.of_home(kept)
    return ProposedBand.smallest() if table is None else ProposedBand.for_table(count_rows(table))


def row_band(store: Store, source: str, rows: int, chosen: int) -> int:
    """Return a data source's row band; keep it if it has none, and refuse a table beyond it.

    chosen: the policy's `row_band`.
    """
    check(store, source, rows, chosen)
    if store.row_band(source) is None:
        store.keep_row_band(source, chosen, by="policy")
    return chosen


def check(store: Store, source: str, rows: int, chosen: int) -> None:
    """Refuse another band than the home has, and a table beyond it; nothing is kept."""
    kept = store.row_band(source)
    if kept is not None and kept != chosen:
        raise RowBandChanged(
            f"the policy says row_band = {chosen}, and {kept} was chosen for {source!r} before, "
            "which answers have shown since. Write that into the policy, or have a person change "
            f"it: veilgp row-band {chosen} --source {source} --by NAME"
        )
    if rows > (chosen // 2 if kept is None else kept):
        raise OutgrewRowBand(
            f"the table has {rows} rows, and the row band of {source!r} is {chosen}: how long this "
            "site takes to answer is fixed for so many rows, and a band is at least twice the rows "
            "when it is chosen. Choose a larger power of two, with room to grow, for example "
            f"{step_for(rows)}: "
            + (
                "row_band in the policy"
                if kept is None
                else f"veilgp row-band {step_for(rows)} --source {source} --by NAME, and row_band "
                "in the policy"
            )
        )


def _words(band: int) -> str:
    return f"{band:,} for at most {band // 2:,} rows"
