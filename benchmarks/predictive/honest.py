"""One set, one split, one seed: NLL and MSE of every method on the same test rows."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.predictive.data import Honest, honest
from benchmarks.predictive.fedbnr import fedbnr
from client_sdk.simulation import simulate
from kernels.ensembles.committee import Committee
from kernels.ensembles.distilled import Method, Opinion
from kernels.ensembles.local_posterior import LocalPosterior
from kernels.model.model import Model, known
from kernels.rounds.columns import moments
from kernels.rounds.compared import ep_mcmc, fedbe, fedpa, fedyogi, one_shot
from kernels.rounds.ensemble import beta, predictive
from kernels.rounds.ensemble.predictive import bounded, prior_at
from kernels.rounds.shared.local_network import sample_at
from kernels.rounds.shared.public_set import Columns, columns_of
from kernels.rounds.site.site import Part
from kernels.scores.gaussians import Gaussian

COMMITTEES = tuple(method.value for method in Method)
STUDENTS = tuple(f"d_{method}" for method in COMMITTEES)
OTHERS = ("fedpa", "ep_mcmc", "fedyogi", "fedbe", "one_shot")
METHODS = ("auto", "fedbnr", *COMMITTEES, *STUDENTS, *OTHERS)

Cell = dict[str, float]


def measure(name: str, data: Path, split: str, seed: int) -> Cell:
    """Return NLL and MSE of every method."""
    rows = honest(name, data, split=split, seed=seed)
    public = columns_of(rows.table(rows.public))
    spec = predictive.Spec(public=public, seed=seed)
    program = rows.program(moments.Spec(), spec, beta.Spec())
    model = simulate(program, rows.sites, secure=False).model
    x, y = rows.standardised_test(model)
    distilled = known(model.distilled, "predictive")
    posteriors = [sample_at(site, model, spec, spec.start(model)) for site in rows.sites]
    opinion = _open(rows, model, spec, posteriors, x)
    found = {f"d_{method}": distilled.predict(method, x) for method in Method}
    found |= {method.value: opinion.teacher(method, distilled.beta) for method in Method}
    found |= _others(rows, public, seed, x)
    cell = {}
    for method, prediction in found.items():
        cell[f"nll_{method}"] = float(-prediction.log_density(y).mean())
        cell[f"mse_{method}"] = float((prediction.mean - y).square().mean())
    cell |= fedbnr(rows)
    cell["beta"] = float(known(distilled.beta, "beta").mean())
    summed = known(distilled.opinion, "predictive")
    here = _open(rows, model, spec, posteriors, summed.inputs)
    cell["teacher_gap"] = _gap(summed, here, distilled.beta)
    return cell


def _open(
    rows: Honest,
    model: Model,
    spec: predictive.Spec,
    posteriors: list[LocalPosterior],
    x: Tensor,
) -> Opinion:
    """Return what all sites say at x, with every site's predictions in one place."""
    said = [bounded(posterior.predict(x)) for posterior in posteriors]
    together = Gaussian(
        torch.stack([each.mean for each in said]), torch.stack([each.variance for each in said])
    )
    counts = torch.tensor([site.count(Part.TRAINING) for site in rows.sites])
    prior = prior_at(model, spec, x)
    return Opinion(x, Committee.of(together, rows=counts, prior=prior), prior, spec.guard)


def _gap(summed: Opinion, here: Opinion, share: Tensor | None) -> float:
    """Return how far summed teachers are from those of all predictions in one place."""
    gaps = []
    for method in Method:
        one, other = (opinion.teacher(method, share) for opinion in (summed, here))
        gaps += [(one.variance / other.variance - 1).abs().max()]
        gaps += [((one.mean - other.mean).abs() / other.variance.sqrt()).max()]
    return float(max(gaps))


def _others(rows: Honest, public: Columns, seed: int, x: Tensor) -> Mapping[str, Gaussian]:
    """Train the networks of every other method, and predict."""
    program = rows.program(
        moments.Spec(),
        fedpa.Spec(seed=seed, epochs=8),
        fedyogi.Spec(seed=seed, epochs=8),
        fedbe.Spec(seed=seed, epochs=40, public=public),
        one_shot.Spec(seed=seed, epochs=40, public=public),
        ep_mcmc.Spec(seed=seed, draws=20),
    )
    trained = simulate(program, rows.sites, secure=False).model
    return {own.method.value: own.predict(x) for own in known(trained.networks, "fedpa")}
