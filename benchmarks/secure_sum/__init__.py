"""The secure sum against flwr's SecAgg+ and against bare keystreams and additions.

All times are CPU seconds of one party, on one processor. The limit is `limit`, sampled between our
own measurements. flwr is `flwr_peer`, in its own environment, with a complete graph and our
threshold. A client's work consists of its epoch (keys, boxes) and its sum (encoding, masks, shares,
certificate, reveal); flwr's client has a new epoch for every sum. If a figure covers several cells,
the worst is reported.

    client_over_limit, coordinator_over_limit      a sum of length 10⁶ in a running epoch, n = 10
                                                   and 100: no dropouts, 20 % before the upload,
                                                   20 % silent before the reveal
    …_with_epoch                                   the same with the whole epoch charged to that sum
    flwr_over_client_<length>                      n = 100, epoch and sum on both sides
    flwr_over_coordinator, …_dropout, …_silent     n = 100, every length, epoch and sum of ours
    max_relative_error                             relative to the largest entry, against math.fsum
    bytes_per_element                              uploaded at length 10⁶, headers included
    steady_sum_over_masking                        10 clients, length 20,000: the median client and
                                                   sum of one epoch, divided by its bare masks
    …_per_member, …_fit                            slope and R² of a line through n = 10 … 200
"""

from benchmarks.secure_sum.command import run

__all__ = ["run"]
