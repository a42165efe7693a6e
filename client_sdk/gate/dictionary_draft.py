"""A draft data dictionary: the columns that a session reads, as this hospital's table has them.

Units, kinds and levels are the session's, because people have agreed on them; bounds are the
table's, rounded outward (`client_sdk.tables.dictionary_draft`), but no wider than the session's own
where those contain them. Levels that few rows of the table have are nobody's business: only the
session's are listed, and a common one that the session lacks, which a person must decide about.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from textwrap import wrap

from client_sdk.gate.dictionary import Dictionary, Entry
from client_sdk.readable import quoted, readable
from client_sdk.tables.dictionary_draft import ColumnShown, look
from client_sdk.tables.draft_limits import FEW_ROWS
from kernels.tables.schema import Schema

_HEAD = f"""\
# The data dictionary of this table: what these columns are at this hospital. It is never sent. A
# session whose schema does not contain it is refused: bounds that are narrower, other units, levels
# that are missing. Without this, a session could choose bounds or levels that put one patient apart
# from all others.
#
# Units are those of the session: check that they are the table's. Bounds contain every value of the
# table and are rounded outward, so that they are not the values of single patients: widen them to
# what is medically possible, never narrow them. Levels that fewer than {FEW_ROWS} rows have are
# only listed if the session has them.
"""


@dataclass(frozen=True)
class DictionaryDraft:
    """A dictionary, and what a person must decide about some columns: one sentence for each."""

    dictionary: Dictionary
    doubts: Mapping[str, str]

    def to_toml(self) -> str:
        """Return the tables [dictionary.COLUMN] of a policy, with comments."""
        return "\n".join([_HEAD, *self._tables()])

    def _tables(self) -> Iterator[str]:
        for name, entry in self.dictionary.entries.items():
            notes = ["# Identifies the patient of a row: never a feature."] if entry.patient else []
            if name in self.doubts:
                notes += wrap(
                    f"DECIDE: {self.doubts[name]}",
                    100,
                    initial_indent="# ",
                    subsequent_indent="# ",
                )
            head = f"[dictionary.{quoted(name)}]"
            yield "\n".join([*notes, head, *entry.lines(), ""])


def draft_dictionary(schema: Schema, data: object) -> DictionaryDraft:
    """Read the columns of a session's schema in a table, all rows, and return a draft."""
    agreed = Dictionary.containing(schema).entries
    shown = look(
        data,
        numbers={name for name, own in agreed.items() if own.numeric},
        labels={name for name, own in agreed.items() if own.levels is not None},
        missing_codes=schema.missing_codes,
    )
    entries, doubts = {}, {}
    for name, own in agreed.items():
        found = shown.get(name, ColumnShown())
        entries[name] = _bounded(own, found) if own.numeric else own
        if dropped := _among_values(entries[name]):
            kept = tuple(code for code in own.missing_codes if code not in dropped)
            entries[name] = replace(entries[name], missing_codes=kept)
            doubts[name] = (
                f"the session's missing codes {', '.join(f'{code:g}' for code in dropped)} lie "
                f"among the values that {name!r} can have at this hospital. Such a session is "
                "refused: correct the table, or ask for another code."
            )
        if own.levels is not None and (lacking := _lacking(own.levels, found.labels)):
            entries[name] = replace(own, levels=(*own.levels, *lacking))
            doubts[name] = (
                f"many rows of this table have {', '.join(map(readable, lacking))} in {name!r}, "
                "which the session's schema lacks. Ask for a schema that lists this; or, if it is "
                "right that the schema merges it with others, delete it from these levels."
            )
    return DictionaryDraft(Dictionary(entries), doubts)


def _bounded(agreed: Entry, found: ColumnShown) -> Entry:
    """Return a number with the table's bounds, within the session's where these contain them."""
    if found.bounds is None:
        return agreed
    lower, upper = found.bounds
    if agreed.lower is not None:
        lower = max(lower, agreed.lower)
    if agreed.upper is not None:
        upper = min(upper, agreed.upper)
    # No value is outside the session's bounds, or the table is refused when it is read.
    return agreed if lower >= upper else replace(agreed, lower=lower, upper=upper)


def _among_values(entry: Entry) -> tuple[float, ...]:
    """Return the missing codes of a number that its bounds contain."""
    if entry.lower is None or entry.upper is None:
        return ()
    lower, upper = entry.lower, entry.upper
    numbers = (code for code in entry.missing_codes if not isinstance(code, str))
    return tuple(code for code in numbers if lower <= code <= upper)


def _lacking(levels: tuple[str, ...], labels: Mapping[str, int]) -> list[str]:
    known = set(levels)
    return sorted(
        label for label, rows in labels.items() if rows >= FEW_ROWS and label not in known
    )
