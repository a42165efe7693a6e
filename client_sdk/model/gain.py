"""A site's own gain from the federation: computed and shown at the site, never sent.

Two models predict the site's held-out rows: the federated model, and a local model with the same
kernel whose linear layer, σ and λ come from the site's own training rows alone. Neither linear
layer has seen the held-out rows: if the program has added them to the federation's, its layer
without them is judged (`Model.judged`). Both use the federation's kernel, which a site alone would
not have, and its scales: the gain from these is not counted. Both are scored as N(μ, v), before
recalibration, in the targets' units. Targets that are not real numbers are compared by their log
loss (`client_sdk.model.outcome_gain`).

With few held-out rows the difference is mostly chance, so it has its standard error over them
(`client_sdk.model.paired`). It is called clear beyond two of these. A site can be better off alone,
if its patients differ from those of the others and it has many: then it is told so.

Nothing here is a `Contribution`, and the coordinator's packages cannot import this module.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from client_sdk.model.outcome_gain import HELD_OUT, OutcomeGain, outcome_gains
from client_sdk.model.paired import of_roots, standard_error
from client_sdk.model.personal.layers import own_layers
from client_sdk.readable import readable
from kernels.errors import EmptyTable
from kernels.model.model import Model, check_fitted, known
from kernels.model.prediction import predict_standardised
from kernels.rounds.site.site import Part, Site
from kernels.scores.evaluation import in_units
from kernels.scores.metrics import Scores
from kernels.tables.row_hashes import row_keys
from kernels.tables.targets import Target

CLEAR = 2.0
"""A difference of more standard errors than this is called clear."""


class Verdict(StrEnum):
    """Which of two models predicts a site's own patients better."""

    FEDERATION = "better with the federation"
    ALONE = "better alone"
    UNCLEAR = "no clear difference"

    @classmethod
    def of(cls, gain: float, error: float) -> "Verdict":
        """Return the verdict on a reduction of errors by the federation, with its ±."""
        if not (math.isfinite(error) and abs(gain) > CLEAR * error):
            return cls.UNCLEAR
        return cls.FEDERATION if gain > 0 else cls.ALONE


@dataclass(frozen=True)
class Line:
    """One target's gain, as it is shown.

    local, federated: the score of either model, lower is better. gain: local − federated. error:
    the standard error of the gain; NaN if there is only one patient.
    """

    target: str
    score: str
    unit: str
    local: float
    federated: float
    gain: float
    error: float

    @property
    def verdict(self) -> Verdict:
        """Which model is better, if that is clear."""
        return Verdict.of(self.gain, self.error)

    def __str__(self) -> str:
        unit = f" {readable(self.unit)}" if self.unit != "1" else ""
        error = f"{self.error:.2g}" if math.isfinite(self.error) else "unknown"
        return (
            f"{readable(self.target)}: {self.score} {self.federated:.4g}{unit} with the "
            f"federation, {self.local:.4g}{unit} alone: {self.verdict}, by {abs(self.gain):.2g} ± "
            f"{error}"
            if self.verdict is not Verdict.UNCLEAR
            else f"{readable(self.target)}: {self.score} {self.federated:.4g}{unit} with the "
            f"federation, {self.local:.4g}{unit} alone: {self.verdict} "
            f"({self.gain:+.2g} ± {error})"
        )


@dataclass(frozen=True, eq=False)
class Gain:
    """Scores of both models on the site's held-out rows, in the targets' units.

    targets, local, federated: of the targets that are real numbers, perhaps none. rmse_error,
    nll_error: the standard errors of `rmse` and `nll`, (T,). outcomes: of all others. rows: the
    number of held-out rows on which both models were scored.
    """

    targets: tuple[Target, ...]
    local: Scores
    federated: Scores
    rmse_error: Tensor
    nll_error: Tensor
    outcomes: tuple[OutcomeGain, ...]
    rows: int

    @property
    def rmse(self) -> Tensor:
        """(T,) the reduction of the root mean squared error by the federation, in units."""
        return self.local.rmse() - self.federated.rmse()

    @property
    def nll(self) -> Tensor:
        """(T,) the reduction of the negative log likelihood by the federation, in nats per row."""
        return self.local.nll() - self.federated.nll()

    @property
    def lines(self) -> tuple[Line, ...]:
        """One line for each target: real numbers by their RMSE, all others by their log loss."""
        real = (
            zip(
                self.targets,
                self.local.rmse().tolist(),
                self.federated.rmse().tolist(),
                self.rmse_error.tolist(),
                strict=True,
            )
            if self.targets
            else ()
        )
        return (
            *(
                Line(own.name, "RMSE", own.unit, local, federated, local - federated, error)
                for own, local, federated, error in real
            ),
            *(
                Line(
                    own.target.name,
                    "log loss",
                    "1",
                    own.local,
                    own.federated,
                    own.log_loss,
                    own.error,
                )
                for own in self.outcomes
            ),
        )

    def __str__(self) -> str:
        lines = self.lines
        worse = [readable(own.target) for own in lines if own.verdict is Verdict.ALONE]
        advice = (
            f"\nFor {', '.join(worse)} this hospital predicts its own patients better without the "
            "federation. A model of its own, which stays here: model.personal(table), or "
            "in the shell veilgp personal MODEL TABLE --out FOLDER. The federation's model remains "
            "the one for patients of all hospitals."
            if worse
            else ""
        )
        return (
            f"What the federation gives this hospital, on {self.rows:,} of its own rows that "
            "neither layer has seen (computed here, sent nowhere):\n"
            + "\n".join(f"  {own}" for own in lines)
            + "\nAlone is a layer of this hospital's own training rows over the same kernel; ± is "
            "the standard error over its held-out rows." + advice
        )

    def __repr__(self) -> str:
        return str(self)


def gain(model: Model, site: Site) -> Gain:
    """Return the comparison of a finished model with this site's own model."""
    check_fitted(model)
    model = model.judged
    if site.count(Part.TRAINING) == 0:
        raise EmptyTable("this site has no training rows, so it has no local model to compare with")
    _check_held_out(site)
    return compared(own_layers(model, site).model, model, site)


def compared(local: Model, federated: Model, site: Site) -> Gain:
    """Return the comparison of two models of one kernel on a site's held-out rows.

    Neither has them in its layers (`Model.judged`).
    """
    rows = _check_held_out(site)
    standardiser = known(federated.standardiser, "moments")
    patients = _patients(federated, site)
    outcomes = outcome_gains(local, federated, site, patients)
    if not federated.schema.real:
        nothing = torch.zeros(0, dtype=torch.float64)
        return Gain((), Scores.zero(0), Scores.zero(0), nothing, nothing, outcomes, rows)
    both = [_judged(each, federated, site) for each in (local, federated)]
    _, scale = standardiser.target_columns
    (own, own_squares, own_losses), (theirs, squares, losses) = both
    rmse_error = standard_error(of_roots(own_squares, squares), patients) * scale
    nll_error = standard_error(own_losses - losses, patients)
    return Gain(
        federated.schema.real,
        in_units(own, standardiser),
        in_units(theirs, standardiser),
        rmse_error,
        nll_error,
        outcomes,
        rows,
    )


def _check_held_out(site: Site) -> int:
    """Return the number of held-out rows; refuse a site without any."""
    rows = sum(site.count(part) for part in HELD_OUT)
    if not rows:
        raise EmptyTable(
            "this site has no held-out rows for the comparison: set held_out in the program"
        )
    return rows


def _judged(model: Model, read_by: Model, site: Site) -> tuple[Scores, Tensor, Tensor]:
    """Return a model's scores on held-out rows, and each row's squared error and log loss, (n, T).

    On the standardised scale. read_by: the model that says which rows are read.
    """
    scores, squares, losses = Scores.zero(model.targets), [], []
    for part in HELD_OUT:
        for x, y, _ in site.chunks(part, read_by):
            predicted = predict_standardised(model, x)
            scores += Scores.of(predicted.mean, predicted.variance, y)
            square, variance = (y - predicted.mean).square(), predicted.variance
            squares.append(square)
            losses.append((torch.log(2 * torch.pi * variance) + square / variance) / 2)
    return scores, torch.cat(squares), torch.cat(losses)


def _patients(model: Model, site: Site) -> list[bytes]:
    """Return the keys of the held-out rows' patients, in the order in which rows are scored.

    Without a patient column every row counts as a patient of its own, equal rows included.
    """
    return list(_keys(model, site))


def _keys(model: Model, site: Site) -> Iterator[bytes]:
    count = 0
    for part in HELD_OUT:
        for records in site.record_chunks(part, model):
            if records.patients is not None:
                yield from row_keys(records)
                continue
            for _ in range(len(records)):
                yield count.to_bytes(8)
                count += 1
