"""RMSE, NLL and calibration error of predictions on test rows, the same for every method."""

from dataclasses import asdict, dataclass

import numpy as np
import torch
from scipy.special import ndtri

from benchmarks.dp.data import Private
from kernels.model.model import Model, known
from kernels.model.prediction import predict
from kernels.scores.metrics import TEN_LEVELS

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Score:
    """In the target's unit; `ece_gaussian` is that of N(μ, v) before recalibration."""

    rmse: float
    nll: float
    ece: float
    ece_gaussian: float

    def plain(self) -> dict[str, float]:
        """Return numbers by name."""
        return asdict(self)


def of_model(model: Model, data: Private) -> Score:
    """Score a model's recalibrated predictions."""
    targets = torch.from_numpy(data.test[:, -1:])
    predictions = predict(model, data.dataset.table(data.test))
    errors = targets - predictions.mean

    def ece(kind: str) -> float:
        gaps = []
        for level in TEN_LEVELS:
            lower, upper = predictions.interval(level, kind)
            inside = ((targets >= lower) & (targets <= upper)).double().mean()
            gaps.append(abs(float(inside) - level))
        return float(np.mean(gaps))

    (law,) = (each.law for each in known(model.recalibration, "recalibration"))
    scale = (predictions.variance / law.variance).sqrt()
    nll = scale.log() - law.log_density(errors / scale)
    return Score(
        float(errors.square().mean().sqrt()), float(nll.mean()), ece("student_t"), ece("gaussian")
    )


def of_gaussian(errors: Vector, variance: Vector) -> Score:
    """Score errors y − μ by N(0, v)."""
    inside = [
        float((np.abs(errors) <= ndtri((1 + level) / 2) * np.sqrt(variance)).mean())
        for level in TEN_LEVELS
    ]
    ece = float(np.mean(np.abs(np.array(inside) - np.array(TEN_LEVELS))))
    nll = float(np.mean(np.log(2 * np.pi * variance) / 2 + errors**2 / variance / 2))
    return Score(float(np.sqrt(np.mean(errors**2))), nll, ece, ece)
