"""A model's card for people: text in a terminal, a table in a notebook, a mapping in a program.

The coordinator chooses the names and units in it, so they are made printable and escaped in HTML.
The explanation of privacy is this program's own text, derived from the card's terms.
"""

from collections.abc import Iterator, Mapping
from html import escape
from textwrap import fill
from typing import Any

from client_sdk.readable import readable
from kernels.errors import KernelsError
from kernels.features.spec import KernelSpec
from kernels.model.card import Card
from kernels.model.card_sections import Law, OutcomeLayer, Privacy, Quality, Served, explained
from kernels.model.figures import count, figure, share
from kernels.model.judged_outcome import JudgedOutcome
from kernels.model.score_errors import OutcomeErrors, TargetErrors
from kernels.rounds.known import known
from kernels.rounds.program import Program
from kernels.rounds.stated.numbers_known import numbers_known
from kernels.scores.metrics import LEVELS
from kernels.tables.schema import Categorical, Numeric
from kernels.tables.targets import AnyTarget, Binary, Classes, Count, Target, TimeToEvent
from privacy.identity import fingerprint
from privacy.members.endorsement import ModelCertificate

LEVEL = 0.9
"""The level of the intervals whose coverage the card shows."""

_MOST_SIGNERS = 10
"""Most signers that the card lists."""
_COLUMNS = ("target", "unit", "method", "RMSE", "NLL", "CRPS", "ECE", f"inside {LEVEL:.0%}")
_OUTCOME_COLUMNS = (
    *("outcome", "kind", "log loss", "before recalibration", f"inside {LEVEL:.0%}"),
    "further scores",
)


class ModelCard(Mapping[str, Any]):
    """The card's JSON as a mapping, as in `card["members"]`, with a readable repr."""

    def __init__(
        self,
        card: Card,
        certificate: ModelCertificate | None = None,
        *,
        names: Mapping[bytes, str] | None = None,
    ) -> None:
        """Show a card and who signed its model; `names` are those of known members, by key."""
        self._card = card
        self._plain = card.to_plain()
        self._signed = _signed(certificate, names or {})

    def __getitem__(self, section: str) -> Any:
        return self._plain[section]

    def __iter__(self) -> Iterator[str]:
        return iter(self._plain)

    def __len__(self) -> int:
        return len(self._plain)

    def __repr__(self) -> str:
        facts = self._facts()
        wide = max(len(name) for name in facts)
        lines = [f"Global model {self._card.id}"]
        for name, value in facts.items():
            hanging = " " * (wide + 4)
            lines += fill(
                value, 100, initial_indent=f"  {name:<{wide}}  ", subsequent_indent=hanging
            ).splitlines()
        tables = _tables(self._card)
        lines += [f"  {_quality_title(self._card)}"] if tables else []
        for table in tables:
            widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            lines += [
                "    "
                + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
                for row in table
            ]
        return "\n".join(lines)

    def _facts(self) -> dict[str, str]:
        return {**_facts(self._card), "signed by": self._signed}

    def _repr_html_(self) -> str:
        facts = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(value)}</td></tr>"
            for name, value in self._facts().items()
        )
        tables = _tables(self._card)
        quality = f"<p>{escape(_quality_title(self._card))}</p>" if tables else ""
        for header, *rows in tables:
            cells = "".join(_html_row(row, "td") for row in rows)
            quality += f"<table>{_html_row(header, 'th')}{cells}</table>"
        return f"<b>Global model {escape(self._card.id)}</b><table>{facts}</table>{quality}"


def _html_row(cells: tuple[str, ...], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _facts(card: Card) -> dict[str, str]:
    privacy = card.privacy
    about = "about " if privacy.differential_privacy else ""
    laws = [
        f"{readable(law.name)}: {_law(law)} ({about}{law.rows:,} rows)"
        for law in card.recalibration or ()
    ]
    outcomes = [_outcome(own) for own in card.outcomes]
    return {
        "predicts": ", ".join(map(_target, card.schema.targets)),
        "from": ", ".join(_column(column) for column in card.schema.features),
        "trained by": f"{card.members:,} hospitals {_on_rows(card)}in {card.sums:,} sums",
        "kernel": _kernel(card.kernel) + _mixed(card),
        "methods": ", ".join(map(_method, card.methods))
        or "none: a kernel without a layer, for personal models (veilgp personal)",
        **({"outcomes": "; ".join(outcomes)} if outcomes else {}),
        **(
            {"residuals": "; ".join(laws) or "not recalibrated: only Gaussian intervals"}
            if card.schema.real and card.methods
            else {}
        ),
        "privacy": explained(
            privacy.unit,
            privacy.min_cohort,
            privacy.max_colluders,
            privacy.epsilon,
            privacy.delta,
            blind=privacy.blind,
        )
        + _noise(privacy),
        "became known": _became_known(card),
        "made": f"{readable(card.created)}, by veilgp {readable(card.veilgp)}",
    }


def _on_rows(card: Card) -> str:
    return "" if card.kernel_alone else f"on {count(card.rows, card.rows_error)} rows "


def _kernel(kernel: KernelSpec) -> str:
    return f"{kernel.architecture}, {kernel.features:,} features"


def _mixed(card: Card) -> str:
    """Say with which second kernel predictions are mixed, if with any."""
    if card.second is None:
        return ""
    share, second = card.second.share, _kernel(card.second.kernel)
    return f" ({1 - share:.1%}); mixed with {second} ({share:.1%})"


def _target(target: AnyTarget) -> str:
    match target:
        case Binary():
            what = f"yes or no: {readable(target.event)}"
        case Classes():
            what = f"{len(target.levels)} classes"
        case TimeToEvent():
            what = f"time to event, {readable(target.unit)}"
        case Count():
            what = f"count, {readable(target.unit)}"
        case Target():
            what = readable(target.unit)
    return f"{readable(target.name)} ({what})"


def _outcome(own: OutcomeLayer) -> str:
    spread = "" if own.dispersion is None else f", dispersion {own.dispersion:.3g}"
    return (
        f"{readable(own.name)}: {readable(own.occurred)} ({own.rows:,} rows, "
        f"λ² = {own.prior_variance:.3g}{spread})"
    )


def _signed(certificate: ModelCertificate | None, names: Mapping[bytes, str]) -> str:
    """Say who has signed a model; a fingerprint stands for a member that is not known here."""
    if certificate is None:
        return "no hospital: this model has no certificate"
    signers = sorted(certificate.signers, key=lambda key: key not in names)
    said = [readable(names[key]) if key in names else fingerprint(key) for key in signers]
    if len(said) > _MOST_SIGNERS:
        said[_MOST_SIGNERS:] = [f"and {len(said) - _MOST_SIGNERS:,} more"]
    of = f"{len(signers):,} of {certificate.statement.members:,} hospitals"
    return f"{of}: {', '.join(said)}. `veilgp verify` says which of them a roster has"


def _became_known(card: Card) -> str:
    """Say how many exact numbers the run made known to whom, according to its program."""
    if card.privacy.differential_privacy:
        return "no exact numbers: noise protects what became known"
    try:
        program = Program.from_json(card.program)
    except KernelsError:
        return "unknown: this veilgp cannot read the program"
    made_known = known(
        program,
        members=card.privacy.min_cohort,
        blind=card.privacy.blind,
        members_only=card.privacy.members_only,
    )
    return numbers_known(made_known)


def _method(served: Served) -> str:
    if served.networks is not None and served.networks > 1:
        return f"{served.method} ({served.networks:,} networks)"
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


def _law(law: Law) -> str:
    if not law.fitted:
        return "too few rows to fit"
    name = "Gaussian" if law.freedom is None else f"Student-t with ν = {law.freedom:.3g}"
    return f"{name} and scale {law.scale:.3g}"


def _quality_title(card: Card) -> str:
    evaluation = card.evaluation
    if evaluation is None:
        return ""
    errors = evaluation.errors
    if errors is None:
        return f"on {evaluation.rows:,} held-out rows"
    rows = count(evaluation.rows, errors.rows)
    return f"on {rows} held-out rows; ± is the standard error from the noise that was added"


def _tables(card: Card) -> list[list[tuple[str, ...]]]:
    """Return a table of the scores of real targets and one of those of outcomes, if there are."""
    return [table for table in (_quality(card), _outcome_quality(card)) if len(table) > 1]


def _outcome_quality(card: Card) -> list[tuple[str, ...]]:
    """Return a header and a row per outcome; the scores are of what is served."""
    if card.evaluation is None:
        return [_OUTCOME_COLUMNS]
    judged, errors = card.evaluation.outcomes, card.evaluation.errors
    of_noise = (None,) * len(judged) if errors is None else errors.outcomes
    return [_OUTCOME_COLUMNS, *map(_judged, judged, of_noise)]


def _judged(own: JudgedOutcome, error: OutcomeErrors | None) -> tuple[str, ...]:
    at = LEVELS.index(LEVEL)
    losses = (None, None) if error is None else (error.log_loss, error.raw_log_loss)
    further = (None,) * len(own.further) if error is None else error.further
    return (
        readable(own.name),
        own.kind.replace("_", " "),
        figure(own.log_loss, losses[0]),
        figure(own.raw_log_loss, losses[1]),
        share(own.inside(LEVEL), None if error is None or not error.inside else error.inside[at]),
        ", ".join(
            f"{name} {figure(score, off)}"
            for (name, score), off in zip(own.further.items(), further, strict=True)
        ),
    )


def _quality(card: Card) -> list[tuple[str, ...]]:
    """Return a header and a row per target and evaluated method, the default first.

    For the default the row shows the recalibrated distribution, if there is one.
    """
    evaluation = card.evaluation
    if evaluation is None:
        return []
    at, rows, errors = evaluation.levels.index(LEVEL), [], evaluation.errors
    for i, target in enumerate(card.schema.real):
        own = (evaluation.recalibrated or evaluation.gaussian)[i]
        off, inside = None, None
        if errors is not None:
            off = (errors.recalibrated or errors.gaussian)[i]
            inside = (errors.conformal[i] if errors.conformal else off.curve)[at]
        curve = evaluation.conformal[i] if evaluation.conformal else own.curve
        rows.append(
            (*_named(target, evaluation.method), *_figures(own, off), share(curve[at], inside))
        )
        rows += [
            (*_named(target, s.method), *_figures(s.quality[i]), share(s.quality[i].curve[at]))
            for s in evaluation.others
        ]
    if evaluation.others:
        return [_COLUMNS, *rows]
    return [(*row[:2], *row[3:]) for row in (_COLUMNS, *rows)]


def _named(target: Target, method: str) -> tuple[str, ...]:
    return readable(target.name), readable(target.unit), method


def _figures(own: Quality, error: TargetErrors | None = None) -> tuple[str, ...]:
    """Return RMSE, NLL, CRPS and ECE, each with its standard error if it has noise."""
    names = "rmse", "nll", "crps", "ece"
    return tuple(
        figure(getattr(own, name), None if error is None else getattr(error, name))
        for name in names
    )
