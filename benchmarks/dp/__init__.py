"""Differential privacy on four sets: error and calibration against ε, beside others' methods.

CCPP, SML, Parkinsons and Bike; the unit is the row, δ = 1e-5; 10 and 100 clients, through the
simulator's real path (integer noise at the door, fixed point, secure totals without masks). Seeds
20 to 24 (`plan`); settings, ours and those of others, were tuned on validation rows of others
(`python -m benchmarks.dp.tuning`).

`rmse_SET_epsE`, `ece_SET_epsE`, `nll_SET_epsE`: of the route `elbo` with 10 clients, in the
units of [FedBNR], means over seeds; ECE on ten levels, of the recalibrated noise-aware posterior.
`…_100`: with 100 clients. `rmse_auto_SET_epsE` and so on: of the route `auto`, the program of a
session that states none (`benchmarks.dp.automatic`), with 10 clients; `auto_cells`: how many of its
cells have been measured (`python -m benchmarks.dp.auto`). `auto_over_elbo_SET_eps1`: its RMSE over
that of `elbo`; `auto_over_opacus_SET`: as `over_opacus_SET`, from means over seeds. Every route and
baseline is in the table, `benchmarks/results/dp.md`.
`federated_over_central_ROUTE_CLIENTS`: RMSE (no colluders, full cohort) over that of one client who
has all rows, geometric mean over sets and ε; `federated_over_central`: the largest of them.
`over_opacus_SET`: mean RMSE over ε ≤ 4 over that of the better of Opacus's two models, with its
standard error over seeds, and on how many sets it is below 1. `colluders_K_…` and `dropouts_K_…`:
RMSE of the public kernel at ε = 1 with noise for 10 − K honest of 10 clients, and with K of 10
missing, over that with none.
`charged_epsilon_epsE`: what the accountant says that a run costs. `claimed_epsE`, `audited_epsE`:
`benchmarks.dp.audit`. `cpu_minutes`: what the cells took of two cores together, two at a time;
`minutes`: of a run that was not stopped in between. Our first route with 10 clients and the methods
of others are means over all seeds, with 100 clients over the first three, and all else is of the
first. Cells are stored one by one: a run that was stopped goes on.
"""

from benchmarks.dp.command import run

__all__ = ["run"]
