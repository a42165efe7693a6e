"""The site's data dictionary: what each column of its data source is, in the site's own words.

    [dictionary.age]          [dictionary.ward]                      [dictionary.patient_id]
    unit = "a"                levels = ["medical", "surgical"]       patient = true
    lower = 0
    upper = 120
    missing_codes = [999]

A session's schema must contain it: bounds that are absent or at least as wide, the same unit, at
least the same levels and missing codes, and no further code that could be a value here. Otherwise a
session could set narrow bounds around values that it knows, merge all levels but one, or call one
value missing, and so put one patient apart from all others. `veilgp policy draft` writes it into
the policy. It is never sent, and because it comes from the table, a refusal because of it is not
reported to the coordinator.
"""

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from client_sdk.errors import DictionaryMismatch, PolicyFileError
from client_sdk.gate import refusals
from client_sdk.readable import quoted
from client_sdk.tables.draft_limits import UNKNOWN
from kernels.errors import SchemaError
from kernels.tables.column_checks import label_code_problems, number_code_problems, within
from kernels.tables.labels import canonical_label
from kernels.tables.schema import Categorical, Schema
from kernels.tables.targets import Binary, Classes, Count, Outcome, TimeToEvent

_FIELDS = ("unit", "lower", "upper", "levels", "missing_codes", "patient")

Codes = tuple[float | str, ...]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One column: a number with a unit and bounds, a category with levels, or the patient."""

    unit: str | None = None
    lower: float | None = None
    upper: float | None = None
    levels: tuple[str, ...] | None = None
    missing_codes: Codes = ()
    patient: bool = False

    def lines(self) -> list[str]:
        """Return the lines of its TOML table."""
        if self.patient:
            return ["patient = true"]
        codes = ", ".join(quoted(o) if isinstance(o, str) else repr(o) for o in self.missing_codes)
        missing = [f"missing_codes = [{codes}]"] if codes else []
        if self.levels is not None:
            return [f"levels = [{', '.join(map(quoted, self.levels))}]", *missing]
        ends = {"lower": self.lower, "upper": self.upper}
        bounds = [f"{name} = {end!r}" for name, end in ends.items() if end is not None]
        return [f"unit = {quoted(self.unit or UNKNOWN)}", *bounds, *missing]

    @property
    def numeric(self) -> bool:
        """Whether the column holds numbers."""
        return self.unit is not None


@dataclass(frozen=True)
class Dictionary:
    """The entries by column; an empty dictionary allows no column."""

    entries: Mapping[str, Entry]

    @classmethod
    def of(cls, plain: object) -> "Dictionary":
        """Read the tables of a TOML file; an unknown or contradictory field is an error."""
        if not isinstance(plain, dict):
            raise PolicyFileError(
                "dictionary must be tables such as [dictionary.age], or the path of a file with "
                "tables such as [age]"
            )
        return cls({name: _entry(name, own) for name, own in plain.items()})

    @classmethod
    def containing(cls, schema: Schema) -> "Dictionary":
        """Return the dictionary that this schema, and any wider one, contains."""
        entries = {
            column.name: Entry(levels=column.levels)
            if isinstance(column, Categorical)
            else Entry(unit=column.unit, lower=column.lower, upper=column.upper)
            for column in (*schema.features, *schema.real)
        }
        for outcome in schema.outcomes:
            entries |= _of_outcome(outcome)
        for name, codes in schema.missing_codes.items():
            entries[name] = replace(entries[name], missing_codes=codes)
        if schema.patient is not None:
            entries[schema.patient] = Entry(patient=True)
        return cls(entries)

    @classmethod
    def read(cls, path: Path) -> "Dictionary":
        """Read a file that has one table per column."""
        try:
            plain = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyFileError(f"cannot read the data dictionary {str(path)!r}: {error}") from (
                error
            )
        except tomllib.TOMLDecodeError as error:
            raise PolicyFileError(
                f"the data dictionary {str(path)!r} is not valid TOML: {error}"
            ) from error
        return cls.of(plain)

    def to_toml(self, under: str = "") -> str:
        """Return one table per column, each named under a prefix such as "dictionary."."""
        return "\n".join(
            "\n".join([f"[{under}{quoted(name)}]", *own.lines(), ""])
            for name, own in self.entries.items()
        )

    @property
    def patient(self) -> str | None:
        """The column that identifies patients, if there is one."""
        return next((name for name, own in self.entries.items() if own.patient), None)

    def problems(self, schema: Schema) -> Iterator[DictionaryMismatch]:
        """Yield a refusal for each column of a session's schema that does not contain its entry."""
        asked = Dictionary.containing(schema).entries
        exposures = {own.exposure for own in schema.outcomes if isinstance(own, Count)}
        for name in schema.columns:
            entry = self.entries.get(name)
            if entry is None:
                yield refusals.not_in_dictionary(name)
            elif name == schema.patient:
                if not entry.patient:
                    yield refusals.not_the_patient(name)
            elif name in exposures:
                # Its limits are the software's, and its unit is not for a session to choose.
                if not entry.numeric:
                    yield refusals.other_kind(name, "numeric")
                yield from _code_problems(name, asked[name], entry)
            else:
                yield from _column_problems(name, asked[name], entry)
                yield from _code_problems(name, asked[name], entry)

    def outside(self, ranges: Mapping[str, tuple[float, float]]) -> Iterator[DictionaryMismatch]:
        """Yield a refusal for each column of the table with values outside the dictionary."""
        for name, (least, most) in ranges.items():
            entry = self.entries.get(name, Entry())
            lower = -math.inf if entry.lower is None else entry.lower
            upper = math.inf if entry.upper is None else entry.upper
            if least < lower or most > upper:
                yield refusals.table_outside_dictionary(name)


def _of_outcome(outcome: Outcome) -> dict[str, Entry]:
    """Return the columns of an outcome: labels with their levels, numbers with their bounds."""
    match outcome:
        case Binary() | Classes():
            return {outcome.name: Entry(levels=outcome.levels)}
        case Count():
            own = {outcome.name: Entry(unit=outcome.unit, lower=0.0, upper=outcome.upper)}
            return own if outcome.exposure is None else {**own, outcome.exposure: Entry(unit="1")}
        case TimeToEvent():
            return {
                outcome.name: Entry(unit=outcome.unit, lower=0.0),
                outcome.event: Entry(levels=(outcome.censored, outcome.happened)),
            }


def _column_problems(name: str, asked: Entry, own: Entry) -> Iterator[DictionaryMismatch]:
    if asked.levels is not None:
        if own.levels is None:
            yield refusals.other_kind(name, "categorical")
            return
        known = set(map(canonical_label, asked.levels))
        if missing := [level for level in own.levels if canonical_label(level) not in known]:
            yield refusals.levels_missing(name, missing)
        return
    if not own.numeric:
        yield refusals.other_kind(name, "numeric")
        return
    if asked.unit != own.unit:
        yield refusals.other_unit(name, asked.unit or "", own=own.unit or "")
    narrow = (
        asked.lower is not None and (own.lower is None or asked.lower > own.lower),
        asked.upper is not None and (own.upper is None or asked.upper < own.upper),
    )
    if any(narrow):
        yield refusals.bounds_too_narrow(
            name, (asked.lower, asked.upper), own=(own.lower, own.upper)
        )


def _code_problems(name: str, asked: Entry, own: Entry) -> Iterator[DictionaryMismatch]:
    """Yield a refusal unless the same cells are missing as in the dictionary.

    A further code is accepted only where no cell can have it: a number outside this site's bounds,
    or a text in a column of numbers. A label may be a rare one, which the dictionary does not list.
    """
    if lacking := [code for code in own.missing_codes if code not in asked.missing_codes]:
        yield refusals.codes_missing(name, lacking)
    if further := [
        code
        for code in asked.missing_codes
        if code not in own.missing_codes
        and (not own.numeric if isinstance(code, str) else within(code, own.lower, own.upper))
    ]:
        yield refusals.codes_not_in_dictionary(name, further)


def _entry(name: str, plain: object) -> Entry:
    where = f"dictionary.{name}"
    if not isinstance(plain, dict):
        raise PolicyFileError(f"{where} must be a table with a unit, levels or patient = true")
    if unknown := [each for each in plain if each not in _FIELDS]:
        raise PolicyFileError(
            f"{where} has unknown lines: {', '.join(map(repr, unknown))}; known lines are "
            f"{', '.join(_FIELDS)}"
        )
    kinds = [each for each in ("unit", "levels", "patient") if each in plain]
    bounds = [each for each in ("lower", "upper") if each in plain]
    coded = "missing_codes" in plain and kinds == ["patient"]
    if len(kinds) != 1 or (bounds and kinds != ["unit"]) or coded:
        raise PolicyFileError(
            f"{where} must have exactly one of unit (with lower and upper, for a number), levels "
            "(for a category) and patient = true; the first two may have missing_codes"
        )
    match kinds[0]:
        case "unit":
            _check_unit(where, plain["unit"])
            lower, upper = (
                _number(f"{where}.{each}", plain[each]) if each in plain else None
                for each in ("lower", "upper")
            )
            if lower is not None and upper is not None and not lower < upper:
                raise PolicyFileError(f"{where}: lower must be below upper")
            codes = _codes(plain)
            _check(number_code_problems(codes, where, bounds=(lower, upper)))
            return Entry(unit=plain["unit"], lower=lower, upper=upper, missing_codes=codes)
        case "levels":
            levels = plain["levels"]
            if not isinstance(levels, list) or not levels:
                raise PolicyFileError(f"{where}.levels must be a list of at least one text")
            if not all(isinstance(level, str) and level.strip() for level in levels):
                raise PolicyFileError(f"every level in {where}.levels must be text, not blank")
            codes = _codes(plain)
            _check(label_code_problems(codes, tuple(levels), where))
            labels = tuple(canonical_label(str(code)) for code in codes)
            return Entry(levels=tuple(levels), missing_codes=labels)
        case _:
            if plain["patient"] is not True:
                raise PolicyFileError(f"{where}.patient must be true, or left out")
            return Entry(patient=True)


def _codes(plain: Mapping[str, Any]) -> Any:
    """Return the missing codes of an entry, not yet checked, with numbers as floats."""
    codes = plain.get("missing_codes", [])
    if not isinstance(codes, list):
        return codes
    return tuple(float(own) if type(own) is int else own for own in codes)


def _check(problems: Sequence[SchemaError]) -> None:
    if problems:
        raise PolicyFileError("; ".join(map(str, problems)))


def _check_unit(where: str, unit: object) -> None:
    if not isinstance(unit, str) or not unit.strip():
        raise PolicyFileError(f'{where}.unit must be text; use "1" if the column has no unit')
    if unit.strip() == UNKNOWN:
        raise PolicyFileError(
            f'{where}.unit is still "{UNKNOWN}": write the unit, or "1" if the column has none'
        )


def _number(where: str, value: object) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        raise PolicyFileError(f"{where} must be a finite number, not {value!r:.40}")
    return float(value)  # type: ignore[arg-type]
