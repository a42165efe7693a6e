"""A model's card for people: text in a terminal, a table in a notebook, a mapping in a program.

Names and units in it are the coordinator's choice, so they are made printable, and escaped in HTML.
What privacy means is said in this program's own words, from the card's terms.
"""

from collections.abc import Iterator, Mapping
from html import escape
from textwrap import fill
from typing import Any

from client_sdk.readable import readable
from kernels.rounds.card import Card
from kernels.rounds.card_sections import Privacy, Served, explained
from kernels.rounds.methods import FEDBNR
from kernels.schema import Categorical, Numeric

LEVEL = 0.9
"""The level at which the card shows how many rows were inside their intervals."""

_COLUMNS = ("target", "unit", "RMSE", "NLL", "CRPS", "ECE", f"inside {LEVEL:.0%}")


class ModelCard(Mapping[str, Any]):
    """The card's JSON as a mapping, as in `card["members"]`, that is readable when printed."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._plain = card.to_plain()

    def __getitem__(self, section: str) -> Any:
        return self._plain[section]

    def __iter__(self) -> Iterator[str]:
        return iter(self._plain)

    def __len__(self) -> int:
        return len(self._plain)

    def __repr__(self) -> str:
        facts = _facts(self._card)
        wide = max(len(name) for name in facts)
        lines = [f"Global model {self._card.id}"]
        for name, value in facts.items():
            hanging = " " * (wide + 4)
            lines += fill(
                value, 100, initial_indent=f"  {name:<{wide}}  ", subsequent_indent=hanging
            ).splitlines()
        table = _quality(self._card)
        if table:
            widths = [max(map(len, column)) for column in zip(_COLUMNS, *table, strict=True)]
            lines += [f"  {_quality_title(self._card)}"]
            lines += [
                "    "
                + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
                for row in (_COLUMNS, *table)
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(value)}</td></tr>"
            for name, value in _facts(self._card).items()
        )
        table = _quality(self._card)
        quality = ""
        if table:
            rows = "".join(_html_row(row, "td") for row in table)
            quality = (
                f"<p>{escape(_quality_title(self._card))}</p>"
                f"<table>{_html_row(_COLUMNS, 'th')}{rows}</table>"
            )
        return f"<b>Global model {escape(self._card.id)}</b><table>{facts}</table>{quality}"


def _html_row(cells: tuple[str, ...], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _facts(card: Card) -> dict[str, str]:
    kernel, privacy = card.kernel, card.privacy
    laws = [
        f"{readable(law.name)}: {_law(law.fitted, law.freedom, law.scale)} ({law.rows:,} rows)"
        for law in card.recalibration or ()
    ]
    return {
        "predicts": ", ".join(
            f"{readable(t.name)} ({readable(t.unit)})" for t in card.schema.targets
        ),
        "from": ", ".join(_column(column) for column in card.schema.features),
        "trained by": f"{card.members:,} hospitals on {card.rows:,} rows in {card.sums:,} sums",
        "kernel": f"{kernel.architecture}, {kernel.features:,} features",
        "methods": ", ".join(map(_method, card.methods)) or FEDBNR,
        "residuals": "; ".join(laws) or "not recalibrated: only gaussian intervals",
        "privacy": explained(
            privacy.unit,
            privacy.min_cohort,
            privacy.max_colluders,
            privacy.epsilon,
            privacy.delta,
        )
        + _noise(privacy),
        "made": f"{readable(card.created)}, by veilgp {readable(card.veilgp)}",
    }


def _method(served: Served) -> str:
    shares = ", ".join(f"{beta:.2g}" for beta in served.beta or ())
    said = [*([served.ensemble] if served.ensemble else []), *([f"β = {shares}"] if shares else [])]
    return f"{served.method} ({', '.join(said)})" if said else served.method


def _noise(privacy: Privacy) -> str:
    if privacy.mechanism is None or privacy.releases is None:
        return ""
    return f" In {privacy.releases:,} sums: {readable(privacy.mechanism)}."


def _column(column: Numeric | Categorical) -> str:
    what = readable(column.unit) if isinstance(column, Numeric) else f"{len(column.levels)} levels"
    missing = ", may be missing" if column.may_be_missing else ""
    return f"{readable(column.name)} ({what}{missing})"


def _law(fitted: bool, freedom: float | None, scale: float) -> str:  # noqa: FBT001
    if not fitted:
        return "too few to judge"
    law = "Gaussian" if freedom is None else f"Student-t with ν = {freedom:.3g}"
    return f"{law} and scale {scale:.3g}"


def _quality_title(card: Card) -> str:
    evaluation = card.evaluation
    return "" if evaluation is None else f"on {evaluation.rows:,} held-out rows"


def _quality(card: Card) -> list[tuple[str, ...]]:
    """One row for each target, of the recalibrated law where there is one."""
    evaluation = card.evaluation
    if evaluation is None:
        return []
    at = evaluation.levels.index(LEVEL)
    rows = []
    for i, target in enumerate(card.schema.targets):
        own = (evaluation.recalibrated or evaluation.gaussian)[i]
        inside = own.curve[at] if evaluation.conformal is None else evaluation.conformal[i][at]
        scores = (f"{score:.4g}" for score in (own.rmse, own.nll, own.crps, own.ece))
        rows.append((readable(target.name), readable(target.unit), *scores, f"{inside:.1%}"))
    return rows
