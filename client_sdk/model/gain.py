"""A site's own gain from the federation: computed and shown at the site, never sent.

Two models predict the site's held-out rows: the federated model, and a local model with the same
kernel whose linear layer, σ and λ come from the site's own training rows alone. Neither linear
layer has seen the held-out rows. Both use the federation's kernel, which a site alone would not
have, and its scales: the gain from these is not counted. Both are scored as N(μ, v), before
recalibration, in the targets' units. With few held-out rows the difference is mostly chance; `rows`
is their number. Targets that are not real numbers are compared by their log loss
(`client_sdk.model.outcome_gain`).

Nothing here is a `Contribution`, and the coordinator's packages cannot import this module.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from client_sdk.model.outcome_gain import HELD_OUT, OutcomeGain, outcome_gains
from kernels.errors import EmptyTable
from kernels.layer.posterior import Spectrum
from kernels.layer.refit import refit
from kernels.model.model import Model, check_fitted, known
from kernels.model.prediction import predict_standardised
from kernels.rounds.shared.sufficient import site_statistics
from kernels.rounds.site.site import Part, Site
from kernels.scores.evaluation import in_units
from kernels.scores.metrics import Scores
from kernels.tables.targets import Target


@dataclass(frozen=True, eq=False)
class Gain:
    """Scores of both models on the site's held-out rows, in the targets' units.

    targets, local, federated: of the targets that are real numbers, perhaps none. outcomes: of all
    others. rows: the number of held-out rows on which both models were scored.
    """

    targets: tuple[Target, ...]
    local: Scores
    federated: Scores
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


def gain(model: Model, site: Site) -> Gain:
    """Return the comparison of a finished model with this site's own model."""
    check_fitted(model)
    standardiser = known(model.standardiser, "moments")
    if site.count(Part.TRAINING) == 0:
        raise EmptyTable("this site has no training rows, so it has no local model to compare with")
    rows = sum(site.count(part) for part in HELD_OUT)
    if not rows:
        raise EmptyTable(
            "this site has no held-out rows for the comparison: set held_out in the program"
        )

    def judged(each: Model) -> Scores:
        scores = Scores.zero(model.targets)
        for x, y, _ in (chunk for part in HELD_OUT for chunk in site.chunks(part, each)):
            predicted = predict_standardised(each, x)
            scores += Scores.of(predicted.mean, predicted.variance, y)
        return in_units(scores, standardiser)

    local = federated = Scores.zero(0)
    if model.schema.real:
        of_site = _of_site(replace(model, second=None), site)
        if model.second is not None and model.other is not None:
            of_site = replace(of_site, second=model.second.without_sums).beside(
                _of_site(model.other, site)
            )
        local, federated = judged(of_site), judged(model)
    return Gain(model.schema.real, local, federated, outcome_gains(model, site), rows)


def _of_site(model: Model, site: Site) -> Model:
    """Return a model of one kernel with the layer of the site's own training rows."""
    own = site_statistics(model, site, Part.TRAINING)
    spectrum = Spectrum.of(own, inducing=model.kernel.inducing_features)
    return replace(model, statistics=own, hyperparameters=refit(spectrum))
