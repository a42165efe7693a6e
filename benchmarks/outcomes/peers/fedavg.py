"""Federated averaging [McMahan17]: every member trains, and their weights are averaged, in rounds.

Weighted by rows, every member in every round, mini-batches and SGD with momentum at the members. A
linear model (logistic, softmax or log-linear regression) and a network of one hidden layer. Times
are learnt as hazards of person-periods.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.outcomes.dataset import Classes, Count, Split, Table, TimeToEvent, YesNo, size
from benchmarks.outcomes.peers.design import Design
from benchmarks.outcomes.peers.person_periods import (
    every_interval,
    person_periods,
    survival,
    with_intervals,
)
from benchmarks.outcomes.scores import Prediction, Scores, scores_of

Weights = Mapping[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]

MOST_ROWS = 128
"""Of a mini-batch: a member with many rows takes more steps."""


@dataclass(frozen=True)
class Tuned:
    """How members train: at least `batches` steps in an epoch; `decay` is a ridge on weights."""

    rounds: int
    epochs: int
    rate: float
    batches: int
    decay: float
    hidden: int = 0


LINEAR = Tuned(rounds=40, epochs=1, rate=0.05, batches=5, decay=1e-3)
NETWORK = Tuned(rounds=40, epochs=1, rate=0.05, batches=5, decay=3e-3, hidden=32)


def fedavg_linear(split: Split) -> Scores:
    """Score a linear model."""
    return _score(split, LINEAR)


def fedavg_network(split: Split) -> Scores:
    """Score a network of 32 hidden units."""
    return _score(split, NETWORK)


def _score(split: Split, tuned: Tuned) -> Scores:
    return scores_of(split.dataset.outcome, split.test, predict(split, tuned))


def predict(split: Split, tuned: Tuned) -> Prediction:
    """Train over the members, and predict the test rows."""
    outcome = split.dataset.outcome
    design = Design.fit(split.dataset, split.pooled)
    generator = torch.Generator().manual_seed(split.seed)
    rows = [_rows(split, design, member) for member in split.members]
    outputs = len(outcome.levels) if isinstance(outcome, Classes) else 1
    torch.manual_seed(split.seed)
    model = _model(rows[0][0].shape[1], tuned.hidden, outputs)
    averaged(model, rows, _LOSSES[type(outcome)], tuned, generator)
    with torch.no_grad():
        return _predicted(split, design, model)


def averaged(
    model: nn.Module,
    members: Sequence[tuple[Tensor, Tensor]],
    loss: Loss,
    tuned: Tuned,
    generator: torch.Generator,
) -> None:
    """Leave in the model the average after the last round; rates fall linearly over rounds."""
    total = sum(len(x) for x, _ in members)
    for number in range(tuned.rounds):
        common = {name: value.clone() for name, value in model.state_dict().items()}
        mean = {name: torch.zeros_like(value) for name, value in common.items()}
        for x, y in members:
            model.load_state_dict(common)
            rate = tuned.rate * (1 - number / tuned.rounds)
            _train(model, x, y, loss, tuned, rate, generator)
            for name, value in model.state_dict().items():
                mean[name] += value * (len(x) / total)
        model.load_state_dict(mean)


def _train(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    loss: Loss,
    tuned: Tuned,
    rate: float,
    generator: torch.Generator,
) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=tuned.decay)
    batches = max(tuned.batches, len(x) // MOST_ROWS)
    for _ in range(tuned.epochs):
        for rows in torch.randperm(len(x), generator=generator).tensor_split(batches):
            optimizer.zero_grad()
            torch.autograd.backward(loss(model(x[rows]), y[rows]))
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


def _model(inputs: int, hidden: int, outputs: int) -> nn.Module:
    if hidden:
        return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))
    model = nn.Linear(inputs, outputs)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def _yes_no(f: Tensor, y: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(f[:, 0], y)


def _classes(f: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(f, y.long())


def _counts(f: Tensor, y: Tensor) -> Tensor:
    return nn.functional.poisson_nll_loss(f[:, 0], y)


_LOSSES: Mapping[type, Loss] = {
    YesNo: _yes_no,
    TimeToEvent: _yes_no,
    Classes: _classes,
    Count: _counts,
}


def _rows(split: Split, design: Design, table: Table) -> tuple[Tensor, Tensor]:
    outcome = split.dataset.outcome
    x, y = design.of(table), table[outcome.name]
    if isinstance(outcome, TimeToEvent):
        periods = person_periods(outcome, table)
        x = with_intervals(x[periods.patient], periods.interval, len(outcome.edges))
        y = periods.event
    return torch.from_numpy(x).float(), torch.from_numpy(y).float()


def _predicted(split: Split, design: Design, model: nn.Module) -> Prediction:
    outcome = split.dataset.outcome
    x = design.of(split.test)
    if isinstance(outcome, TimeToEvent):
        patient, interval = every_interval(size(split.test), len(outcome.edges))
        x = with_intervals(x[patient], interval, len(outcome.edges))
    f = model(torch.from_numpy(x).float()).double()
    if isinstance(outcome, Classes):
        return np.asarray(torch.softmax(f, dim=1).numpy())
    if isinstance(outcome, Count):
        return np.asarray(f[:, 0].exp().numpy())
    p = np.asarray(torch.sigmoid(f[:, 0]).numpy())
    return survival(p, len(outcome.edges)) if isinstance(outcome, TimeToEvent) else p
