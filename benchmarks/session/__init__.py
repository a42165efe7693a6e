"""A session of ten hospital processes against one process, and against flwr with SecAgg+.

A coordinator (`veilgp serve`) and ten hospitals (`veilgp join`) are processes on this machine that
talk by HTTP on loopback; every sum is a secure one, signed and written to disk. Seconds are of the
wall clock. The kernel has 200 features and about 20,000 parameters.

    exact_step_over_simulate   one step of exact training (two sums) with 2,000 rows a hospital, in
                               the session, over the same steps by `simulate(secure=False)` in this
                               process, measured before and after the session
    ms_per_sum                 of those steps in the session
    equals_simulate            the session's model is that of `simulate`, bit for bit
    flwr_session_over_ours     federated averaging, ten clients, 20 rounds, vectors of the same
                               length: flwr's simulation engine with SecAgg+ over our session
    predict_over_empty_route, bulk_over_kernel: see `benchmarks/predict_latency.py`

How far the session has come is asked for five times a second. Its steps are counted from the second
to the last one of the exact stage, and those of `simulate` likewise.

In federated averaging the local work is next to none on either side: our hospitals have 60 rows
each and take one step of Adam, flwr's clients return their vector at once. Starting is in neither
time. Our clock runs from the moment at which all hospitals have come to the run to its end, with
the epoch's boxes, the moments before training and the linear layer after it; flwr's runs after a
first round that warms it up.
"""

from benchmarks.session.command import run

__all__ = ["run"]
