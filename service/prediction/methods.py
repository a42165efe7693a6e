"""The prediction methods of a model, and the ways in which their ensembles are served.

    distilled   a student network of the combined predictions of all sites; part of the model
    open        the unmasked samples of the sites that share them; only here (`open_ensembles`)

`fedbnr` is one model and not an ensemble, and so is the mixture of a method's networks. Rate limits
and error messages are the same for all methods (`prediction`); access to variances is not
(`variances`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.ensembles.distilled import Method
from kernels.errors import KernelsError
from kernels.model.card import Card
from kernels.model.methods import METHODS
from kernels.model.model import Model
from kernels.model.prediction import Predictions, predict
from kernels.rounds.ensemble.open_ensemble import OpenEnsemble

OPEN = "open"
"""An ensemble that is computed from the samples of the sites that share them."""


@dataclass(frozen=True)
class ServedMethod:
    """A method and the ways in which its ensemble is served; none for `fedbnr` and for networks."""

    method: str
    ensembles: tuple[str, ...]


def listed(text: str, *, opened: bool) -> tuple[ServedMethod, ...]:
    """Return the methods of a model from the text of its card; none if the card is damaged.

    opened: whether any site shares its samples.
    """
    try:
        return served(Card.from_json(text), opened=opened)
    except KernelsError:  # the list must still show a damaged model, so that it can be deleted
        return ()


def served(card: Card, *, opened: bool = False) -> tuple[ServedMethod, ...]:
    """Return the methods of a model from its card, the default first."""
    found = {
        each.method: () if each.ensemble is None else (each.ensemble,) for each in card.methods
    }
    if opened:
        # β is determined together with its student network: without it there is no β.
        there = [each.value for each in Method if each is not Method.BETA or each in found]
        found |= {each: (*found.get(each, ()), OPEN) for each in there}
    return tuple(ServedMethod(each, found[each]) for each in METHODS if each in found)


def predicted(
    model: Model,
    table: Mapping[str, object],
    *,
    method: str | None,
    ensemble: OpenEnsemble | None = None,
) -> Predictions:
    """Predict a table with a method, by default the model's first."""
    return predict(
        model, table, method=method, committee=None if ensemble is None else ensemble.predict
    )
