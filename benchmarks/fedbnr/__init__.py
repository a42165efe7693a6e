"""FedBNR and what it is measured against, on [FedBNR]'s five sets with 10 and 100 clients.

Its protocol of §3.2.2 (`protocol`), all rows of its tables (`families`), its metrics with its
own numbers beside ours (`tables`) and whether we hold what we claim (`claims`). Results are kept
cell by cell in `benchmarks/results/fedbnr.cells.json`: a run that was stopped goes on, and a row is
measured again only when the code that decides its numbers has changed. `--anew`: all of them.
`--only TEXT`: of the missing cells those whose name has this in it, as `exact/sml/10/0`, nothing
of what clients cost; with a TEXT that no name has, tables and pictures of what is kept. `--quick`:
FedBNR exact alone, two seeds of at most 100 steps.

Rows that earlier sources measured, and this run does not measure again, are shown and counted as
such: training amplifies a change in the last bit, and single cells move by some percent.

FedBNR auto is the program of a session that states a schema alone (`automatic`); FedBNR exact has a
recipe for each set. `auto_` before a figure: of FedBNR auto.
`rmse_SET_CLIENTS`, `ece_SET_CLIENTS` …: of FedBNR exact, means over seeds, test error in the
[FedBNR]'s units at the weights chosen by held-out error, and the calibration error of the
recalibrated predictive on the ten levels. `exact_over_pooled_cpu_CLIENTS`: CPU seconds of the same
number of steps through sums of encoded contributions, over those on pooled rows in one place.
`max_prediction_gap_clients`: the largest difference of the test means of 1, 10 and 100 clients, in
predictive standard deviations. `coverage_90_SET_CLIENTS`: test rows inside the 90 % conformal
interval, and of the client with the fewest (rows like its own by the column that clients were cut
by; computed here, where all rows are at hand, and never sent).
"""

from benchmarks.fedbnr.command import run

__all__ = ["run"]
