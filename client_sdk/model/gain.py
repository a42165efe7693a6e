"""A site's own gain from the federation: computed at the site, shown there, sent to no one.

Two models predict the site's held-out rows: the federated one, and a local one with the same kernel
whose linear layer, σ and λ come from the site's own training rows alone. Neither linear layer saw
these rows. Both share the federation's kernel, which a site alone would not have, and its scales:
what is gained there is not counted. Both are judged as N(μ, v), before recalibration, in the
targets' units. With few held-out rows the difference is mostly chance: `rows` says how many.

Nothing here is a `Contribution`, and the coordinator's room cannot import this one.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from kernels.errors import EmptyTable
from kernels.layer.posterior import Spectrum
from kernels.layer.refit import refit
from kernels.model.model import Model, known
from kernels.model.prediction import predict_standardised
from kernels.rounds.shared.sufficient import site_statistics
from kernels.rounds.site.site import Part, Site
from kernels.scores.evaluation import in_units
from kernels.scores.metrics import Scores
from kernels.tables.schema import Target


@dataclass(frozen=True, eq=False)
class Gain:
    """Scores of both models on the site's held-out rows, in the targets' units."""

    targets: tuple[Target, ...]
    local: Scores
    federated: Scores

    @property
    def rows(self) -> int:
        """How many held-out rows both were judged on."""
        return int(self.local.rows[0])

    @property
    def rmse(self) -> Tensor:
        """(T,) how much smaller the federated root mean squared error is, in units."""
        return self.local.rmse() - self.federated.rmse()

    @property
    def nll(self) -> Tensor:
        """(T,) how many nats a row the federated model is better by."""
        return self.local.nll() - self.federated.nll()


def gain(model: Model, site: Site) -> Gain:
    """Compare a finished model with the one that this site would have alone."""
    known(model.statistics, "linear")
    standardiser = known(model.standardiser, "moments")
    if site.count(Part.TRAINING) == 0:
        raise EmptyTable("this site has no training rows, so no model of its own to compare with")
    own = site_statistics(model, site, Part.TRAINING)
    local = replace(model, statistics=own, hyperparameters=refit(Spectrum.of(own)))
    held_out = (Part.STOPPING, Part.CALIBRATION)
    if not any(site.count(part) for part in held_out):
        raise EmptyTable("this site held out no rows to compare on: give the program a held_out")

    def judged(each: Model) -> Scores:
        scores = Scores.zero(model.targets)
        for x, y, _ in (chunk for part in held_out for chunk in site.chunks(part, each)):
            predicted = predict_standardised(each, x)
            scores += Scores.of(predicted.mean, predicted.variance, y)
        return in_units(scores, standardiser)

    return Gain(model.schema.targets, judged(local), judged(model))
