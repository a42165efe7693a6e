"""Drafts of several sites merged into one schema, for a person to check.

    levels           united                    bounds          widened outward; open if any is
    missing codes    united                    may be missing  if it may at any site

A column that only some drafts have is kept, and may be missing: a draft leaves out a column whose
cells are all missing at its site. A unit that one site has written counts for those that have not;
units that nobody has written are named.
What cannot be decided is a conflict, and all conflicts are named together: another kind or unit,
another event or `other`, another patient column, a target that one draft lacks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from client_sdk.errors import SchemasDiffer
from client_sdk.tables.draft import Draft, without_unit
from client_sdk.tables.draft_limits import UNKNOWN
from kernels.errors import SchemaRefused
from kernels.tables.labels import canonical_label
from kernels.tables.schema import Categorical, Feature, Numeric, Schema
from kernels.tables.targets import AnyTarget, Binary, Classes, Count, Target, TimeToEvent, kind_of

C = TypeVar("C", bound=Feature | AnyTarget)


def merge_schemas(schemas: Mapping[str, Schema], *, drop: Sequence[str] = ()) -> Draft:
    """Return one schema for the tables of all sites, and advice on what to check.

    schemas: at least one, by the name that messages call it, such as its file's. drop: features
    that the merged schema leaves out.
    """
    if not schemas:
        raise SchemasDiffer("no schemas are given: name at least one")
    merging = _Merging(drop)
    features = merging.columns([(name, own.features) for name, own in schemas.items()], "feature")
    targets = merging.columns([(name, own.targets) for name, own in schemas.items()], "target")
    known = {own.name for schema in schemas.values() for own in schema.features}
    merging.conflicts += [f"{name!r} cannot be dropped: no feature" for name in {*drop} - known]
    patient = merging.same("the patient column", {n: own.patient for n, own in schemas.items()})
    if merging.conflicts:
        raise SchemasDiffer(_listed(merging.conflicts))
    try:
        schema = Schema(tuple(features), tuple(targets), patient)
    except SchemaRefused as refused:
        # For example a missing code of one site that is a level at another.
        raise SchemasDiffer(_listed(map(str, refused.problems))) from None
    unknown = without_unit(schema)
    if unknown:
        merging.advice.append(
            f"no site has written the unit of {', '.join(map(repr, unknown))}: write it in place "
            f"of {UNKNOWN!r}, or '1' if there is none"
        )
    return Draft(schema, tuple(merging.advice))


class _Merging:
    """Conflicts and advice so far."""

    def __init__(self, drop: Sequence[str]) -> None:
        self._drop = drop
        self.conflicts: list[str] = []
        self.advice: list[str] = []

    def columns(self, given: Sequence[tuple[str, Sequence[C]]], role: str) -> list[C]:
        """Return the merged columns, in the order in which they first appear."""
        names = dict.fromkeys(own.name for _, columns in given for own in columns)
        found = []
        for name in (own for own in names if own not in self._drop):
            having = {site: own for site, columns in given for own in columns if own.name == name}
            lacking = [site for site, _ in given if site not in having]
            where = f"{role} {name!r}" if role == "target" else f"column {name!r}"
            if lacking and role == "target":
                self.conflicts.append(f"{where}: {', '.join(lacking)} does not have it as a target")
            elif self.same(f"{where}: its kind", {s: _kind(own) for s, own in having.items()}):
                found.append(self._merged(where, having, absent=lacking))
        return found

    def _merged(self, where: str, having: Mapping[str, Any], *, absent: Sequence[str]) -> Any:
        """Return one column for those of several sites, which are of one kind."""
        columns = [*having.values()]
        changes: dict[str, Any] = {"missing_codes": _united(own.missing_codes for own in columns)}

        def agreed(field: str) -> None:
            each = {site: getattr(own, field) for site, own in having.items()}
            changes[field] = self.same(f"{where}: its {field}", each)

        match columns[0]:
            case Numeric() | Target():
                changes |= {"unit": self._unit(where, having), **self._bounds(where, having)}
            case Categorical():
                changes["levels"] = _levels(own.levels for own in columns)
                others = {s: own.other for s, own in having.items() if own.other is not None}
                changes["other"] = self.same(f"{where}: its other", others) if others else None
            case Binary() | Classes():
                changes["levels"] = _levels(own.levels for own in columns)
                if isinstance(columns[0], Binary):
                    agreed("event")
                    if len(changes["levels"]) > 2:
                        shown = ", ".join(map(repr, changes["levels"]))
                        self.conflicts.append(f"{where}: it has more than two levels: {shown}")
            case Count():
                codes = _united(own.exposure_missing_codes for own in columns)
                changes |= {"unit": self._unit(where, having), "exposure_missing_codes": codes}
                changes["upper"] = max(own.upper for own in columns)
                agreed("exposure")
            case TimeToEvent():
                codes = _united(own.event_missing_codes for own in columns)
                changes |= {"unit": self._unit(where, having), "event_missing_codes": codes}
                for field in ("event", "happened", "censored", "edges", "horizon"):
                    agreed(field)
        if isinstance(columns[0], Numeric | Categorical):
            changes["may_be_missing"] = any(own.may_be_missing for own in columns) or bool(absent)
        if absent:
            self.advice.append(
                f"{where}: {', '.join(absent)} does not have it; it is kept, and may be missing: "
                "the table must have the column, even without a cell. To leave it out, use --drop"
            )
        # After a conflict only further conflicts are of interest, and no column is built.
        return columns[0] if self.conflicts else replace(columns[0], **changes)

    def same(self, what: str, each: Mapping[str, Any]) -> Any:
        """Return the only value there is; note a conflict and return None if there are several."""
        values = {*each.values()}
        if len(values) == 1:
            return next(iter(values))
        shown = ", ".join(f"{value!r} in {site}" for site, value in each.items())
        self.conflicts.append(f"{what} differs ({shown})")
        return None

    def _unit(self, where: str, having: Mapping[str, Any]) -> str:
        units = {site: own.unit for site, own in having.items() if own.unit.strip() != UNKNOWN}
        return (self.same(f"{where}: its unit", units) or UNKNOWN) if units else UNKNOWN

    def _bounds(self, where: str, having: Mapping[str, Any]) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        ends: tuple[tuple[str, Callable[[list[float]], float]], ...] = (
            ("lower", min),
            ("upper", max),
        )
        for end, widest in ends:
            given = {site: getattr(own, end) for site, own in having.items()}
            there = [value for value in given.values() if value is not None]
            found[end] = widest(there) if there and len(there) == len(given) else None
            if there and found[end] is None:
                still_open = [site for site, value in given.items() if value is None]
                self.advice.append(f"{where}: {end} is open, as it is in {', '.join(still_open)}")
        return found


def _kind(column: Feature | AnyTarget) -> str:
    if isinstance(column, Numeric):
        return "numeric"
    return "categorical" if isinstance(column, Categorical) else kind_of(column)


def _levels(given: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the levels of all sites: sorted if each site's are, otherwise as they first appear."""
    lists = [*given]
    united = _united(lists)
    return tuple(sorted(united)) if all([*own] == sorted(own) for own in lists) else united


def _united(given: Iterable[Sequence[Any]]) -> tuple[Any, ...]:
    """Return what is in any list, once: labels that are read alike are the same."""
    found: dict[object, Any] = {}
    for each in (own for one in given for own in one):
        found.setdefault(canonical_label(each) if isinstance(each, str) else each, each)
    return tuple(found.values())


def _listed(conflicts: Iterable[str]) -> str:
    return "\n".join(["the schemas cannot be merged:", *(f"  - {own}" for own in conflicts)])
