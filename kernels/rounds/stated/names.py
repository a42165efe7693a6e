"""The names of the installed algorithms, for what reads a name and should not wait for torch.

`kernels.rounds.registry` has the algorithms themselves; a test compares the two.
"""

ALGORITHM_NAMES = frozenset(
    {
        "beta",
        "completion",
        "distillation",
        "elbo",
        "ep_mcmc",
        "evaluation",
        "exact",
        "fedavg",
        "fedbe",
        "fedpa",
        "fedyogi",
        "linear",
        "linear_two_sums",
        "moments",
        "one_shot",
        "outcomes",
        "predictive",
        "private_exact",
        "recalibration",
        "refinement",
        "search",
        "update",
    }
)
