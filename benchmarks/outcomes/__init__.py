"""Outcomes beside real numbers: yes/no, classes, counts and times on seven sets, beside others.

Heart disease in its 4 hospitals, the stroke trial in 79 members, WDBC in 10, flchain in 10 sorted
by age, medpar in 22, rwm5yr in 10 with patients as units, MNIST in 10. Seeds 0 to 4 draw the fifth
of the rows that is for testing, the same for every method (`sets`, `plan`). Beside ours: each
hospital alone (the mean of their scores on all test rows), FedAvg of a linear model and of a
network, and on pooled rows logistic, Cox or negative binomial regression, boosting and a Gaussian
process (`peers`). A table of all scores of all methods is written beside the figures.

`logloss_over_best_pooled_SET`: of ours, over that of the pooled method with the lowest mean over
seeds. `auc_stroke`, `ece_stroke` (ten bins of equally many rows), `accuracy_mnist`: of ours.
`concordance_minus_cox_flchain`: Harrell's, minus that of pooled Cox. `deviance_over_pooled_SET`:
mean Poisson deviance over that of pooled negative binomial regression.
`max_prediction_gap_clients`: the largest difference between our predictions and those of one client
with all rows, over all sets and seeds.
`private_logloss_over_opacus_SET_epsE`: over that of Opacus's logistic regression on pooled rows;
the unit is the row, δ = 1e-5; flchain is here a yes/no outcome, dead within five years.
`private_sets_no_worse_than_opacus`: on how many of three sets the mean of log losses over ε is no
higher; `private_largest_ece`: over sets and ε.
`METHOD_SCORE_SET`: a mean over seeds of a method of others. `cpu_minutes`: what the cells took.
Figures of what was not measured (`--only`) are left out. Cells are kept in
`benchmarks/results/outcomes.cells.json` with a fingerprint of what decides them: a run that was
stopped goes on, a change of ours measures ours again, and `--anew` measures everything.
"""

from benchmarks.outcomes.command import run

__all__ = ["run"]
