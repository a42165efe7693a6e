"""Scores with differential privacy: few sums, clipped beyond any good prediction, and repaired.

What one row adds must be small, or noise hides the scores. On the standardised scale, with σ_t the
noise deviation of the model, which all parties know, the contribution of a row is clipped at

    squared error      C² with C = 4σ_t
    √v, CRPS           C
    log loss           4 nats from ½ log 2πσ_t² + ½, that of a residual of one σ_t

and of the 19 nested intervals a row is counted only in the narrowest that contains it: in one of 20
bins, instead of in up to 19 counts. The sums of the T targets are separate elements of a block, so
k rows move the bins of one law by at most k√T, squared errors by k‖C²‖, √v and CRPS by k‖C‖, log
losses by 4k√T.

The number of rows is the sum of all bins. Widths of central intervals are √v times a quantile of
the law, so all of them follow from Σ√v. Interval losses are estimated from the bins, as if each row
were in the middle of its bin. For a model that claims far too little noise the errors are clipped
here, and its calibration shows the problem.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.layer.posterior import Hyperparameters
from kernels.noisy.counts import repaired
from kernels.scores.metrics import LEVELS, Scores
from kernels.scores.student_t import StudentT

BINS = len(LEVELS) + 1
_REACH = 4.0
_LOG_REACH = 4.0
_GREATEST = 1e100
_MIDDLES = tuple((k + 0.5) / BINS for k in range(BINS))


@dataclass(frozen=True, eq=False)
class Clips:
    """The bounds at which a row's contribution to the scores is clipped. deviation: σ_t, (T,)."""

    deviation: Tensor

    @classmethod
    def of(cls, hyperparameters: Hyperparameters) -> "Clips":
        """Return the bounds for the model's noise variance."""
        return cls(hyperparameters.noise_variance.sqrt())

    @property
    def residual(self) -> Tensor:
        """C of each target, (T,)."""
        return _REACH * self.deviation

    @property
    def log_centre(self) -> Tensor:
        """The centre of the clipped log losses, (T,)."""
        return self.deviation.log() + (math.log(2 * math.pi) + 1) / 2

    def sensitivities(self) -> Mapping[str, float]:
        """Return how far one row can move each kind of sum, in Euclidean norm."""
        root = math.sqrt(len(self.deviation))
        return {
            "squared_errors": float(self.residual.square().norm()),
            "deviations": float(self.residual.norm()),
            "bins": root,
            "log_losses": _LOG_REACH * root,
            "ranked_losses": float(self.residual.norm()),
        }

    def of_model(self, residuals: Tensor, variance: Tensor) -> dict[str, Tensor]:
        """Return the sums over rows, (n, T), that do not depend on the law of residuals."""
        r = residuals.clamp(-self.residual, self.residual)
        return {
            "squared_errors": r.square().sum(0),
            "deviations": variance.sqrt().minimum(self.residual).sum(0),
        }

    def of_laws(
        self, laws: Sequence[StudentT], residuals: Tensor, variance: Tensor
    ) -> dict[str, Tensor]:
        """Return the sums over rows, (n, T), that depend on the law of each target's residuals."""
        s = variance.sqrt()
        z = residuals / s

        def by_law(loss: Callable[[StudentT, Tensor], Tensor]) -> Tensor:
            return torch.stack([loss(*each) for each in zip(laws, z.unbind(1), strict=True)], 1)

        # For extreme residuals a loss can be ∞·0 or ∞ − ∞: count it as the largest loss.
        log_losses = s.log() - by_law(StudentT.log_density) - self.log_centre
        log_losses = log_losses.nan_to_num(nan=_LOG_REACH)
        ranked = (by_law(StudentT.ranked_loss) * s).nan_to_num(nan=_GREATEST)
        reach = [[law.half_width(level) for level in LEVELS] for law in laws]
        return {
            "bins": bins(z, reach),
            "log_losses": log_losses.clamp(-_LOG_REACH, _LOG_REACH).sum(0),
            "ranked_losses": ranked.clamp_min(0.0).minimum(self.residual).sum(0),
        }

    def scores(self, laws: Sequence[StudentT], sums: Mapping[str, Tensor], rows: float) -> Scores:
        """Return valid scores of `rows` rows from the noisy sums of both kinds."""
        most = self.residual * rows
        deviations = sums["deviations"].clamp(min=0.0).minimum(most)
        shares = inside(sums["bins"])
        reach = _reach(laws, LEVELS)
        widths = 2 * reach * deviations[:, None]
        logs = sums["log_losses"].clamp(-_LOG_REACH * rows, _LOG_REACH * rows)
        return Scores(
            torch.full_like(deviations, rows),
            sums["squared_errors"].clamp(min=0.0).minimum(self.residual * most),
            logs + rows * self.log_centre,
            sums["ranked_losses"].clamp(min=0.0).minimum(most),
            shares * rows,
            widths,
            widths + deviations[:, None] * _beyond(shares, reach, _reach(laws, _MIDDLES)),
        )


def bins(z: Tensor, reach: Sequence[Sequence[float]]) -> Tensor:
    """Count rows (n, T) by the narrowest interval with |z|, (T, BINS); `reach` is in order."""
    edges = torch.tensor(reach, dtype=torch.float64)
    counted = [
        torch.bincount(torch.bucketize(own, ends), minlength=BINS)
        for own, ends in zip(z.mT.abs().contiguous(), edges, strict=True)
    ]
    return torch.stack(counted).double()


def inside(noisy_bins: Tensor) -> Tensor:
    """Return the share of rows inside the interval of each level, (T, 19), from noisy bins."""
    counts = repaired(noisy_bins)
    return (counts.cumsum(1) / counts.sum(1, keepdim=True))[:, :-1]


def _reach(laws: Sequence[StudentT], levels: Sequence[float]) -> Tensor:
    return torch.tensor([[law.half_width(p) for p in levels] for law in laws], dtype=torch.float64)


def _beyond(shares: Tensor, reach: Tensor, middles: Tensor) -> Tensor:
    """Return interval losses minus widths, in deviations, of rows in the middle of their bins."""
    whole = torch.ones_like(shares[:, :1])
    masses = torch.cat([shares, whole], 1).diff(dim=1, prepend=torch.zeros_like(whole))
    excess = (middles[:, None, :] - reach[:, :, None]).clamp_min(0.0)
    levels = torch.tensor(LEVELS, dtype=torch.float64)
    return 2 / (1 - levels) * (excess * masses[:, None, :]).sum(-1)
