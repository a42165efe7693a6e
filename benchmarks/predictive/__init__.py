"""Predictive-space committees on the five sets of [PredBayes]: NLL and MSE beside FedBNR.

Five clients, homogeneous and sorted, five seeds (`data`). `nll_SET_SPLIT_METHOD`,
`mse_SET_SPLIT_METHOD`: of test rows, per row, in standardised units; students (`d_…`) beside the
open committees that taught them, FedBNR (`auto`: a session that states a schema alone; `fedbnr`:
one kernel and recipe), and the comparison rows (`honest`). β comes from the clients' held-out rows.
`student_over_teacher_nll`: the worst over sets, splits and methods of the
students' mean NLL over the teachers', where the latter is above 0.4 in size;
`student_minus_teacher_nll`: the worst difference elsewhere. `fedbnr_best_or_near_SPLIT`, `auto_…`:
on how many sets its NLL is the best of all, or within a standard error of it. `teacher_gap`: the
largest difference between summed teachers and those of all predictions in one place, in deviations
and as a ratio of variances. `student_over_network_time`, `loop_over_batched`: CPU time of
predicting (`cost`).

The seeds are 10 to 14: defaults of the product were chosen on seeds 0 and 1 (the prior's variance,
the guard) and on 100 and 101 (the extra rows, FedBNR's kernel).

`--as-printed`: with [PredBayes]'s data, metric and numbers (`printed`, `printed_tables`).
"""

from benchmarks.predictive.command import run

__all__ = ["run"]
