"""The methods that a model is asked to predict by, and the ways in which each is served here.

    distilled   a student of what all sites said together; it is part of the model, wherever that is
    open        the sites' own samples, of those that show them; here alone (`open_ensembles`)

`fedbnr` is one model and no ensemble: it is served in no way but itself. Whatever way there is, who
may see variances, how much may be asked and what is said of a table is the same (`prediction`).
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
"""An ensemble that is served by the samples of those sites that show them."""


@dataclass(frozen=True)
class ServedMethod:
    """A method, and in which ways its ensemble is served; none for `fedbnr`."""

    method: str
    ensembles: tuple[str, ...]


def listed(text: str, *, opened: bool) -> tuple[ServedMethod, ...]:
    """List the methods of a model by the text of its card; none where that is damaged.

    opened: some site shows its samples.
    """
    try:
        return served(Card.from_json(text), opened=opened)
    except KernelsError:  # whoever lists models may be looking for the one to delete
        return ()


def served(card: Card, *, opened: bool = False) -> tuple[ServedMethod, ...]:
    """List the methods of a model by its card, its default first."""
    found = {
        each.method: () if each.ensemble is None else (each.ensemble,) for each in card.methods
    }
    if opened:
        # β is found with its student: without one there is none.
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
    """Predict a table by a method, the first that there is where none is named."""
    return predict(
        model, table, method=method, committee=None if ensemble is None else ensemble.predict
    )
