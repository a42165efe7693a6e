"""Sessions that state a schema alone: eighteen sets that nothing is tuned for, beside others.

Twelve sets of real numbers, three of yes/no, two of counts and one of times (`sets`), each cut into
ten members by its first column, 5 seeds; a fifth of the rows is for testing. Beside `auto`: each
fixed candidate of its search, run alone; a tuned exact Gaussian process of the pooled rows (real
numbers, at most 5,000 rows); boosting (`peers`). A table of all scores is written beside the
figures, and a picture of NLL by the number of training rows.

`sets`, `sets_regression`: how many were measured. `sets_within_best_candidate`: whose mean NLL is
within .02 nats, or 2 % of |NLL| if that is more, of the best fixed candidate's.
`sets_at_or_below_central_gp`: of the sets of real numbers, by mean NLL. `coverage_90`: the share of
test rows in their 90 % intervals or sets, of all sets with one, and `_least`, `_most` of any set.
`sums_over_costliest`, `cpu_over_costliest`: of auto over the costliest candidate run alone, secure
sums, and CPU seconds of a hospital; the worst set. `largest_nll_over_best_candidate`,
`largest_nll_over_central_gp`, `curve_nll_over_central_gp`: nats, the worst set (and number of
training rows). `cpu_minutes`: what the cells took.
Figures of what was not measured (`--only`) are left out. Cells are kept in
`benchmarks/results/auto.cells.json` with a fingerprint of what decides them: a run that was stopped
goes on, a change of ours measures ours again and no peers, and `--anew` measures everything.
"""

from benchmarks.auto.command import run

__all__ = ["run"]
