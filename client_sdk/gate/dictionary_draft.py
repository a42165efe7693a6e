"""The text of a drafted data dictionary: TOML with a comment at each column, for review."""

from client_sdk.gate.dictionary import Entry
from client_sdk.readable import quoted
from client_sdk.tables.dictionary_draft import DictionaryDraft, DraftedColumn
from client_sdk.tables.draft_limits import FEW_ROWS, UNKNOWN

_HEAD = f"""\
# The data dictionary of one data source, for review. It stays at this hospital.
#
# A session whose schema does not contain it is refused: bounds that are narrower, other units,
# levels that are missing, columns that are not listed. Without this, a session could choose bounds
# or levels that put one patient apart from all others. Delete the columns that no session may read.
#
# Bounds contain every value of the table and are rounded outward, so that they are not the values
# of single patients: widen them to what is medically possible, never narrow them. Levels that fewer
# than {FEW_ROWS} rows have are not listed. Write the unit in place of "{UNKNOWN}", or "1" if there
# is none.
"""


def text_of(draft: DictionaryDraft) -> str:
    """Return the file."""
    return "\n".join([_HEAD, *(_table(draft, column) for column in draft.columns)])


def _table(draft: DictionaryDraft, column: DraftedColumn) -> str:
    entry = Entry(
        unit=draft.unit(column.name) if column.lower is not None else None,
        lower=column.lower,
        upper=column.upper,
        levels=column.levels,
        missing_codes=column.missing_codes,
        patient=column.patient,
    )
    notes = []
    if column.patient:
        notes.append("# Identifies the patient of a row: never a feature.")
    if column.rare:
        notes += [
            f"# Further levels that occur in fewer than {FEW_ROWS} rows each: {column.rare}. Merge",
            "# them in the table: least_level_rows refuses a schema that has them.",
        ]
    return "\n".join([*notes, f"[{quoted(column.name)}]", *entry.lines(), ""])
