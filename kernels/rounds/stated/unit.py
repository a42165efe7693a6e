"""The unit that a program's noise covers, read from the program's text alone.

`Program.from_json` checks everything and needs the algorithms, and so torch. This reads the text of
a program that was checked before, to say in words what its noise covers.
"""

from dataclasses import dataclass

from kernels.errors import ProgramError
from kernels.strict_json import parse_json
from kernels.tables.schema import Schema


@dataclass(frozen=True, kw_only=True)
class Unit:
    """The unit of privacy: a patient with at most `max_rows` rows, or a row without `patient`."""

    patient: str | None
    max_rows: int


def stated_unit(text: str) -> Unit | None:
    """Return the unit of a program's noise; None if the program has no noise.

    >>> stated_unit('{"version": 3}') is None
    True
    """
    wrong: list[str] = []
    plain = parse_json(text, "the program", wrong)
    if wrong or not isinstance(plain, dict):
        raise ProgramError("; ".join(wrong) or "the program must be a JSON object")
    privacy, schema = plain.get("privacy"), plain.get("schema")
    if privacy is None:
        return None
    most = privacy.get("max_rows_per_patient") if isinstance(privacy, dict) else None
    if type(most) is not int or not isinstance(schema, str):
        raise ProgramError("the program does not state what its noise covers")
    return Unit(patient=Schema.from_json(schema).patient, max_rows=most)
