"""Phase 1 by kernel distillation on a labelled public set (004, §3.1.3, eq. 3.4).

    L^KD(θ, σ, λ) = L_kd/K + α·mean (Φ_kd Φ_kdᵀ − T)²,   T = Σ_c Φ_c Φ_cᵀ / |S|

where Φ_c (K, M) are the features of the K public rows X_kd under site c's trained kernel and L_kd
is the negative log evidence of (X_kd, y_kd). The thesis adds up rows and has twice L: its α is 2K
of ours, which means the same for public sets of any size. The default is the best of 1, 10, 100 and
1000 by test RMSE on SML and Parkinsons, one seed: a start, to be chosen by validation.

broadcast  θ, σ, λ, and the public rows, which are part of the program
local      training from there (`local_training`), then the Gram matrix Φ_c Φ_cᵀ of the public rows
           and 1; nothing from a site without rows
sum        the mean teacher kernel T on the public rows: the coordinator sees no site's kernel, and
           no weights of any site, summed or not
update     θ, σ and λ by `distillation_steps` of Adam on L^KD, from where they were

A Gram matrix's entries are at most ‖φ‖² (`squared_norm_bound`), or M·FEATURE_BOUND² for kernels
without such a bound. σ and λ of the end fit the public set; the linear layer refits them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from kernels.cells import as_array
from kernels.errors import ProgramError, StatisticsError
from kernels.local_evidence import negative_log_evidence
from kernels.plain import is_number
from kernels.records import Records
from kernels.rounds.algorithm import Contribution, accepted
from kernels.rounds.local_training import Fit, minimise, starting_scales, train_locally
from kernels.rounds.model import Model, known
from kernels.rounds.parameters import check_at_least, check_learning_rate, check_whole
from kernels.rounds.site import Part, Site
from kernels.rounds.storage import PRIVATE
from kernels.rounds.sufficient import FEATURE_BOUND, RESOLUTION
from kernels.urk import URK
from privacy.layout import Block, Layout, SecureTotal

NAME = "distillation"
VERSION = 1

MOST_PUBLIC_ROWS = 4096
"""A Gram matrix of more would be longer than any sum here needs to be."""

Columns = tuple[tuple[str, tuple[float | str | None, ...]], ...]


def columns_of(table: Mapping[str, object]) -> Columns:
    """Return a public table as plain data: columns of numbers, labels, and None where missing.

    >>> columns_of({"age": [61.0, float("nan")], "ward": np.array(["A", "B"])})
    (('age', (61.0, None)), ('ward', ('A', 'B')))
    """
    return _checked([(name, map(_cell, as_array(cells))) for name, cells in table.items()])


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The public set, and how to train on it and at the sites.

    public: `columns_of` a table with the schema's features and targets, in their units.
    rounds: of training and distilling. local_steps, learning_rate, proximal: as in `fedavg`.
    distillation_steps, distillation_rate: of Adam at the coordinator. alpha: α.
    """

    public: Columns
    rounds: int = 20
    local_steps: int = 10
    learning_rate: float = 0.01
    proximal: float = 0.0
    distillation_steps: int = 50
    distillation_rate: float = 0.01
    alpha: float = 100.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "public", _checked(self.public))
        check_whole(
            1,
            rounds=self.rounds,
            local_steps=self.local_steps,
            distillation_steps=self.distillation_steps,
        )
        check_learning_rate(
            learning_rate=self.learning_rate, distillation_rate=self.distillation_rate
        )
        check_at_least(0.0, proximal=self.proximal, alpha=self.alpha)

    @property
    def public_rows(self) -> int:
        """Return K."""
        return len(self.public[0][1])


@dataclass(frozen=True, eq=False)
class Progress:
    """A round's distillation: L^KD before and after its steps, and how far from T it ends."""

    round: int
    loss_before: float
    loss_after: float
    mismatch: float


@dataclass(frozen=True, eq=False)
class State:
    """`round`: how many teachers have been distilled."""

    model: Model
    spec: Spec
    round: int = 0
    history: tuple[Progress, ...] | None = field(default=None, metadata=PRIVATE)


def initial(spec: Spec, model: Model) -> State:
    """Check the public set; start at the model's weights, or the kernel's own, and σ = λ = 1."""
    public_table(spec, model)
    start = Fit.of(model, starting_scales(model.targets))
    return State(_at(model, start), spec, history=())


def layout(state: State) -> Layout:
    """Return the Gram matrix, and how many sites it is of."""
    kernel, rows = state.model.kernel, state.spec.public_rows
    bound = kernel.squared_norm_bound or kernel.features * FEATURE_BOUND**2
    return Layout(
        (
            Block("gram", (rows, rows), bound * (1 + 2.0**-40), RESOLUTION, symmetric=True),
            Block("sites", (), 1.0, 1.0),
        )
    )


def contribute(state: State, site: Site) -> Contribution:
    """Train, and return the trained kernel's Gram matrix of the public rows."""
    model, spec = state.model, state.spec
    x, y = site.table(Part.TRAINING, model)
    if not len(y):
        return {"gram": np.zeros((spec.public_rows, spec.public_rows)), "sites": np.zeros(())}
    trained = train_locally(
        model.kernel,
        _fit(model),
        x,
        y,
        steps=spec.local_steps,
        learning_rate=spec.learning_rate,
        proximal=spec.proximal,
    )
    public, _ = public_table(spec, model)
    with torch.no_grad():
        phi = URK(model.kernel, trained.weights).features(public)
    return {"gram": (phi @ phi.mT).numpy(), "sites": np.ones(())}


def update(state: State, total: SecureTotal) -> State:
    """Distil the mean teacher kernel."""
    total = accepted(total, layout(state))
    model, spec, sites = state.model, state.spec, float(total["sites"])
    if sites < 0.5:
        raise StatisticsError("no site has rows to train on: let the program hold out fewer")
    x, y = public_table(spec, model)
    teacher = torch.tensor(total["gram"]) / sites

    def loss(urk: URK, log_noise: Tensor, log_prior: Tensor) -> Tensor:
        return distillation_loss(
            urk.features(x), y, teacher, log_noise=log_noise, log_prior=log_prior, alpha=spec.alpha
        )

    start = _fit(model)
    end = minimise(
        loss,
        model.kernel,
        start,
        steps=spec.distillation_steps,
        learning_rate=spec.distillation_rate,
    )
    with torch.no_grad():
        before, after = (
            float(loss(URK(model.kernel, fit.weights), fit.log_noise, fit.log_prior))
            for fit in (start, end)
        )
        mismatch = float(_mismatch(URK(model.kernel, end.weights).features(x), teacher))
    progress = Progress(state.round, before, after, mismatch)
    return replace(
        state,
        model=_at(model, end),
        round=state.round + 1,
        history=(*known(state.history, NAME), progress),
    )


def finished(state: State) -> bool:
    """Done after the last round."""
    return state.round == state.spec.rounds


def public_table(spec: Spec, model: Model) -> tuple[Tensor, Tensor]:
    """Return the public rows as sites' rows are: checked by the schema, standardised alike."""
    # Nobody's rows: a public set need not say whose they are.
    schema = replace(model.schema, patient=None)
    records = Records.for_training(schema, dict(spec.public))
    rows = known(model.standardiser, "moments").apply(records)
    return rows.features, known(rows.targets, "moments")


def distillation_loss(
    features: Tensor,
    targets: Tensor,
    teacher: Tensor,
    *,
    log_noise: Tensor,
    log_prior: Tensor,
    alpha: float,
) -> Tensor:
    """Return L^KD, differentiable in features (K, M), log σ and log λ; teacher: T, (K, K)."""
    evidence = negative_log_evidence(features, targets, log_noise=log_noise, log_prior=log_prior)
    return evidence / len(features) + alpha * _mismatch(features, teacher)


def _mismatch(features: Tensor, teacher: Tensor) -> Tensor:
    return (features @ features.mT - teacher).square().mean()


def _fit(model: Model) -> Fit:
    return Fit.of(model, known(model.hyperparameters, NAME))


def _at(model: Model, fit: Fit) -> Model:
    return model.advanced(weights=fit.weights, hyperparameters=fit.hyperparameters)


def _cell(value: object) -> object:
    plain = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and math.isnan(plain) else plain


def _checked(public: object) -> Columns:
    """Take columns that may have come from JSON, as lists; the schema checks them later."""
    columns = _as_columns(public)
    lengths = {len(cells) for _, cells in columns}
    plain = all(
        value is None or isinstance(value, str | bool) or is_number(value)
        for _, cells in columns
        for value in cells
    )
    if len(lengths) != 1 or not 1 <= min(lengths) <= MOST_PUBLIC_ROWS or not plain:
        raise ProgramError(
            f"public must be columns of one length, 1 to {MOST_PUBLIC_ROWS}, of finite numbers, "
            "texts and nulls: make it with columns_of"
        )
    return columns


def _as_columns(public: object) -> Columns:
    try:
        columns = tuple((name, tuple(cells)) for name, cells in public)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        columns = ()
    if not columns or not all(isinstance(name, str) for name, _ in columns):
        raise ProgramError("public must be pairs of a column's name and its cells")
    return columns
