"""A session of ten hospital processes against one process, and against flwr with SecAgg+.

A coordinator (`veilgp serve`) and ten hospitals (`veilgp join`) are processes on this machine that
communicate by HTTP on loopback. Every sum is a secure sum, signed and written to disk. Times are
wall-clock seconds. The kernel has 200 features and about 20,000 parameters.

    exact_step_over_simulate   one step of exact training (two sums) with 2,000 rows per hospital,
                               in a session with open sums, divided by the same steps with
                               `simulate(secure=False)` in this process. No answer waits for its
                               answer time. The fastest of three sessions over the fastest of seven
                               simulations, one before and one after each session; …_worst is the
                               slowest session over the mean of the two around it
    verified_over_plain        that ratio, divided by the one that the last commit with protocol
                               version 1 had: what tags, verified totals and replay cost
    blind_over_open            such a step with blind sums, divided by one with open sums; sessions
                               of both kinds take turns, and the fastest of three counts
    coordinator_cpu_blind_over_open   the coordinator's CPU seconds per sum in the same sessions
    ms_per_sum, ms_per_sum_blind      milliseconds per sum of those steps in the session
    ms_per_sum_with_wait       the same in a session with blind sums whose hospitals wait for their
                               answer times. Here ten of them measure those times at once, on two
                               cores
    equals_simulate            whether every session's model equals that of `simulate`, bit for bit
    contribute_ms_…, replay_ms_…, answer_ms_…: by algorithm, see `by_algorithm.py`
    flwr_session_over_ours     federated averaging, ten clients, 20 rounds, vectors of the same
                               length: flwr's simulation engine with SecAgg+ divided by our session,
                               the fastest of three and of two, which take turns
    predict_over_empty_route, bulk_over_kernel: see `benchmarks/predict_latency.py`

The session's progress is polled five times a second. Its steps are counted from the second to the
last step of the exact stage, and so are those of `simulate`.

In federated averaging there is almost no local work on either side: our hospitals have 60 rows each
and take one step of Adam, and flwr's clients return their vector at once. Neither time includes
startup. Our time runs from the moment when all hospitals have joined the run until its end,
including the epoch's boxes, the moments before training and the linear layer after it. flwr's time
starts after a first warm-up round.
"""

from benchmarks.session.command import run

__all__ = ["run"]
