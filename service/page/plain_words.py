"""What stages, runs and metrics are called on the page, in words for people who know no algorithm.

The names that hospitals' policies and the API use stand beside these words. Every installed
algorithm has a sentence here (a test compares).
"""

from dataclasses import dataclass

STAGES = {
    "moments": "Measure the columns: means, scales and how common each level is",
    "fedavg": "Train the kernel by averaging what hospitals have learned",
    "distillation": "Train the kernel by comparing it on the rows of a public table",
    "exact": "Train the kernel, as if all rows were in one place",
    "search": "Train several kernels and choose the best",
    "private_exact": "Train the kernel, with noise",
    "elbo": "Train the kernel on random samples of rows, with noise",
    "linear": "Fit the model to all training rows",
    "linear_two_sums": "Fit the model to all training rows, in two sums",
    "outcomes": "Fit the targets that are not plain numbers",
    "completion": "Add the held-out rows to the finished model",
    "predictive": "Combine what hospitals' own models predict",
    "beta": "Find the best mixture of hospitals' own models",
    "fedpa": "Train networks by posterior averaging (FedPA), for comparison",
    "ep_mcmc": "Combine hospitals' samples in one round (EP-MCMC), for comparison",
    "fedyogi": "Train a network by adaptive averaging (FedYogi), for comparison",
    "fedbe": "Train networks by Bayesian model ensembles (FedBE), for comparison",
    "one_shot": "Distil hospitals' own networks once, for comparison",
    "refinement": "Correct the fit by the model's own errors",
    "recalibration": "Set the width of intervals on held-out rows",
    "evaluation": "Score the model on held-out rows",
    "update": "Add rows to the model and remove others",
}

RUN_KINDS = {
    "train": "Training from the start",
    "linear": "Fitting again with a model's kernel",
    "evaluate": "Scoring a model again",
    "update": "Adding and removing rows",
}


@dataclass(frozen=True)
class MetricName:
    """A metric by its name, the name of its axis, and what it says.

    falls: it is lower where training goes well.
    """

    title: str
    axis: str
    falls: bool = True


_METRICS = {
    "evidence": MetricName("Loss", "negative log evidence per row"),
    "held_out_error": MetricName(
        "Error on held-out rows", "mean absolute error, in the target's standard deviations"
    ),
    "gradient_norm": MetricName("Length of the gradient", "norm", falls=False),
    "loss_before": MetricName("Loss before local steps", "distillation loss per row"),
    "loss_after": MetricName("Loss after local steps", "distillation loss per row"),
    "mismatch": MetricName("Distance of the kernels", "mean squared distance", falls=False),
}


def stage_words(algorithm: str) -> str:
    """Return what a stage does; the name itself of an algorithm without words."""
    return STAGES.get(algorithm, algorithm)


def metric_name(name: str) -> MetricName:
    """Return the title and axis of a metric.

    >>> metric_name("evidence").title
    'Loss'
    """
    words = name.replace("_", " ")
    return _METRICS.get(name) or MetricName(words.capitalize(), words, falls=False)
