"""Opacus: DP-SGD of a logistic regression on pooled rows; the unit is the row, δ = 1e-5.

PrivacyEngine with Poisson sampling and its tightest accountant (PRV), Adam, a rate that falls to
zero along a cosine, and predictions by the mean of the weights of the last half of the steps, which
costs no privacy. It is given for free what a private method would pay for: means and deviations of
the columns, and the number of rows. TUNED is one setting for all sets and every ε. Log loss at
ε = 1 of heart, stroke and flchain_5y, seed 100; without privacy .414, .529, .277:

    TUNED .432 .531 .273; rate .05 .464 .531 .272; 80 epochs .451 .531 .273; clip .7 .429 .534 .272,
    1.5 .447 .532 .273
    before clips were over √p, at rate .05: clip .3 .670 .884 .373, 1 .553 .687 .284, 3 .467 .550
    .272, 6 .467 .531 .272; and at clip 6: rate .02 .420 .531 .282, .01 .422 .531 .325, both too
    slow for flchain's intercept; rate .02 with 20 epochs .424 .531 .324, with three times the batch
    and 60 epochs .423 .531 .308
"""

import math
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader

from benchmarks.dp.opacus_sgd import Rows
from benchmarks.outcomes.dataset import Split
from benchmarks.outcomes.peers.design import Design
from benchmarks.outcomes.scores import Prediction, Scores, scores_of

DELTA = 1e-5
CLIP_INPUTS = 5.0
"""Standardised inputs are cut here, so that no row is all of a gradient."""


@dataclass(frozen=True)
class Tuned:
    """How DP-SGD is run.

    batch: a share of the rows. clip: the largest norm of a row's gradient, over √p, the typical
    norm of p standardised inputs.
    """

    epochs: int
    batch: float
    rate: float
    clip: float


TUNED = Tuned(epochs=40, batch=0.1, rate=0.03, clip=1.0)


def opacus_logistic(split: Split, epsilon: float) -> Scores:
    """Score a logistic regression that cost ε."""
    return scores_of(split.dataset.outcome, split.test, predict(split, epsilon, TUNED))


def predict(split: Split, epsilon: float, tuned: Tuned) -> Prediction:
    """Return probabilities of the test rows."""
    design = Design.fit(split.dataset, split.pooled)
    x, tested = (
        torch.from_numpy(design.of(rows).clip(-CLIP_INPUTS, CLIP_INPUTS)).float()
        for rows in (split.pooled, split.test)
    )
    y = torch.from_numpy(split.pooled[split.dataset.outcome.name]).float()
    generator = torch.Generator().manual_seed(split.seed)
    model = nn.Linear(x.shape[1], 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    loader = DataLoader(
        Rows(x, y),
        batch_size=math.ceil(tuned.batch * len(x)),
        generator=generator,
        collate_fn=lambda batch: batch,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=tuned.rate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus warns of its own hooks and of its generator
        private, stepper, batches = PrivacyEngine(accountant="prv").make_private_with_epsilon(
            module=model,
            optimizer=optimizer,
            data_loader=loader,
            target_epsilon=epsilon,
            target_delta=DELTA,
            epochs=tuned.epochs,
            max_grad_norm=tuned.clip * math.sqrt(x.shape[1]),
            noise_generator=generator,
        )
        steps = tuned.epochs * len(loader)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        mean, averaged, step = torch.zeros(x.shape[1] + 1), 0, 0
        for _ in range(tuned.epochs):
            for inputs, outcomes in batches:
                stepper.zero_grad()
                if len(inputs):
                    loss = nn.functional.binary_cross_entropy_with_logits
                    torch.autograd.backward(loss(private(inputs)[:, 0], outcomes))
                    stepper.step()
                schedule.step()
                step += 1
                if 2 * step > steps:
                    averaged += 1
                    now = torch.cat([model.weight.detach()[0], model.bias.detach()])
                    mean += (now - mean) / averaged
    logits = tested @ mean[:-1] + mean[-1]
    return np.asarray(torch.sigmoid(logits).double().numpy())
