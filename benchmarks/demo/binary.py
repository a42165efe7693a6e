"""The demo's yes/no target: the scores of each model, the card's reliability curve, one patient."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from client_sdk.plots import reliability
from kernels.model.prediction import Predictions
from kernels.outcomes.scored.binary import Predicted, Quality, Sums
from kernels.tables.targets import Binary

_LEVEL = 0.9


def quality(target: Binary, chances: NDArray[np.float64], answers: NDArray[np.generic]) -> Quality:
    """Return the scores of predicted probabilities of the event."""
    happened = torch.tensor(answers.astype(str) == target.event, dtype=torch.float64)
    return Sums.of(target, happened.unsqueeze(1), Predicted(torch.tensor(chances).logit())).quality(
        target
    )


def print_scores(
    target: Binary,
    rows: Mapping[str, NDArray[np.float64]],
    answers: NDArray[np.generic],
) -> None:
    """Print log loss, AUC and ECE of each model's probabilities."""
    print(f"\n{target.name} = {target.event!s:7} {'log loss':>8} {'AUC':>8} {'ECE':>8}")
    for name, chances in rows.items():
        found = quality(target, chances, answers)
        print(f"{name:20} {found.log_loss:8.3f} {found.auc or np.nan:8.3f} {found.ece:8.3f}")


def draw(folder: Path, target: Binary, card: Mapping[str, Any]) -> Path:
    """Draw the reliability curve on the model's card: that of all hospitals' held-out rows."""
    judged = next(own for own in card["evaluation"]["outcomes"] if own["name"] == target.name)
    curve = judged["binary"]["curve"]
    axes = reliability.draw(
        curve["predicted"],
        curve["observed"],
        curve["rows"],
        title=f"{target.name} = {target.event}",
    )
    path = folder / "reliability.png"
    axes.figure.savefig(path, dpi=110)
    return path


def sentence(target: Binary, predicted: Predictions) -> str:
    """Return what the model says of one patient: a probability, and a conformal set."""
    own = predicted.outcome(target.name)
    chance, deviation = float(own.mean[0]), float(own.variance[0].sqrt())
    inside = own.sets(_LEVEL)[0].tolist()
    levels = [level for level, there in zip(target.levels, inside, strict=True) if there]
    return (
        f"{target.name}: {target.event} with a probability of {chance:.2f}, known to "
        f"±{deviation:.2f}; the set that holds the answer in {_LEVEL:.0%} of cases is "
        f"{{{', '.join(levels)}}}"
    )
