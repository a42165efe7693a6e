"""The methods that a model is asked to predict by, and the ways in which each is served here.

    distilled   a student of what all sites said together; it is part of the model, wherever that is

`fedbnr` is one model and no ensemble: it is served in no way but itself. Whatever way there is, who
may see variances, how much may be asked and what is said of a table is the same (`prediction`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.errors import KernelsError
from kernels.rounds.card import Card
from kernels.rounds.methods import FEDBNR
from kernels.rounds.model import Model
from kernels.rounds.prediction import Predictions, predict


@dataclass(frozen=True)
class ServedMethod:
    """A method, and in which ways its ensemble is served; none for `fedbnr`."""

    method: str
    ensembles: tuple[str, ...]


def listed(text: str) -> tuple[ServedMethod, ...]:
    """List the methods of a model by the text of its card; none where that is damaged."""
    try:
        return served(Card.from_json(text))
    except KernelsError:  # whoever lists models may be looking for the one to delete
        return ()


def served(card: Card) -> tuple[ServedMethod, ...]:
    """List the methods of a model by its card, its default first."""
    if not card.methods:  # written before there were others
        return (ServedMethod(FEDBNR, ()),)
    return tuple(
        ServedMethod(each.method, () if each.ensemble is None else (each.ensemble,))
        for each in card.methods
    )


def predicted(model: Model, table: Mapping[str, object], *, method: str | None) -> Predictions:
    """Predict a table by a method, the model's first where none is named."""
    return predict(model, table, method=method)
