"""The benchmark run: every cell of ours, the limit and flwr, and the figures computed from them."""

import os
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.cells import Cell, Cells
from benchmarks.peers import require_peers, run_peer
from benchmarks.registry import RESULTS, Figures
from benchmarks.secure_sum.growth import GROWTH, growth_figures, plot
from benchmarks.secure_sum.limit import Limit
from benchmarks.secure_sum.ours import measure_cohort, measure_steady, quorum

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FLWR = HERE / "flwr_peer.py"
SHORT, LONG = 10**4, 10**6
LENGTHS = {10: (SHORT, 10**5, LONG, 10**7), 100: (SHORT, 10**5, LONG)}
QUICK_LENGTHS = {10: (SHORT, LONG), 100: (10**4, LONG)}
FAULTS = {"none": (0.0, 0.0), "dropout": (0.2, 0.0), "silent": (0.0, 0.2)}
"""The shares of members that send no upload, and that fall silent before the reveal."""

Key = tuple[int, int, str]


def run(options: Namespace) -> Figures:
    require_peers()
    with _one_processor():
        return _run(quick=options.quick)


@contextmanager
def _one_processor() -> Iterator[None]:
    """Pin this process and its child processes to one processor, if the system supports it."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(usable)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usable)


def _run(*, quick: bool) -> Figures:
    stem = "secure_sum.quick" if quick else "secure_sum"
    sources = [*ROOT.glob("privacy/**/*.py"), *HERE.glob("*.py")]
    cells = Cells(RESULTS / f"{stem}.cells.json", sources)
    flwr_cells = Cells(RESULTS / f"{stem}.flwr.cells.json", [FLWR])
    lengths = QUICK_LENGTHS if quick else LENGTHS
    ours: dict[Key, Cell] = {}
    clients: dict[tuple[int, int], Cell] = {}
    for members, length in [(n, length) for n, longs in lengths.items() for length in longs]:
        size = f"n = {members}, length {length}"
        flwr_client = partial(_flwr, party="client", members=members, length=length)
        # Measured before and after ours, so that a change in the machine's speed affects both.
        before = flwr_cells.measure(f"flwr client, {size}", flwr_client)
        by_fault = cells.measure(f"ours, {size}", partial(_ours, members, length))
        after = flwr_cells.measure(f"flwr client again, {size}", flwr_client)
        ours |= {(members, length, fault): cell for fault, cell in by_fault.items()}
        clients[members, length] = {name: (before[name] + after[name]) / 2 for name in before}
    # flwr's server takes minutes at n = 100: other lengths are measured only in the full run.
    servers = {
        (members, length, fault): flwr_cells.measure(
            f"flwr server, n = {members}, length {length}, faults: {fault}",
            partial(_flwr_server, members, length, fault, quick=quick),
        )
        for members, length, fault in ours
        if not quick or (members, length) == (100, SHORT)
    }
    error = flwr_cells.measure(
        "flwr error", partial(_flwr, party="error", members=10, length=SHORT)
    )
    steady = cells.measure("steady", partial(measure_steady, sums=100 if quick else 500))
    growth = {
        members: ours.get((members, SHORT, "none"))
        or cells.measure(f"growth, n = {members}", partial(_ours, members, SHORT))["none"]
        for members in GROWTH
        if members <= 100 or not quick
    }
    _print_table(ours, clients, servers)
    plot(RESULTS / f"{stem}.png", _by_length(ours, clients, servers), growth)
    cells.finish()
    flwr_cells.finish()
    return (
        _limit_figures(ours)
        | _flwr_figures(ours, clients, servers)
        | {
            "max_relative_error": max(cell["relative_error"] for cell in ours.values()),
            "flwr_relative_error": error["relative_error"],
            "bytes_per_element": max(
                cell["client_sum_bytes_up"] / length
                for (_, length, _), cell in ours.items()
                if length == LONG
            ),
            "steady_sums": int(steady["sums"]),
            "steady_sum_ms": 1e3 * _without_tags(steady, "client"),
            "steady_sum_with_tags_ms": 1e3 * _with_tags_s(steady),
            "steady_sum_over_masking": _without_tags(steady, "client") / steady["masking_s"],
        }
        | growth_figures(growth)
    )


def _ours(members: int, length: int) -> dict[str, Cell]:
    """Measure all kinds of fault in one epoch; growth cells outside the table have no faults."""
    faults = FAULTS if members in LENGTHS and length <= LONG else {"none": (0.0, 0.0)}
    return measure_cohort(
        members,
        length,
        {name: _numbers(members, name) for name in faults},
        # A hundred clients give a hundred samples; ten need more sums for an equally stable median.
        sums=max(2 if length == SHORT else 1, 90 // members),
        memory=length == SHORT,
    )


def _numbers(members: int, fault: str) -> tuple[int, int]:
    """Return how many members drop out before the upload, and how many before the reveal."""
    dropped, silent = FAULTS[fault]
    return round(dropped * members), round(silent * members)


def _flwr_server(members: int, length: int, fault: str, *, quick: bool) -> Cell:
    """Time flwr's server: for all secrets in full runs at length 10⁴, else a tenth, scaled up."""
    dropped, silent = _numbers(members, fault)
    owners = members // 10 if members >= 100 and (quick or length > SHORT) else members
    cell = _flwr(
        party="server",
        members=members,
        length=length,
        dropped=dropped,
        silent=silent,
        owners=owners,
    )
    return {"server_s": cell["collect"] + cell["unmask"] * members / cell["owners"]}


def _flwr(*, members: int, **arguments: object) -> Cell:
    return run_peer(FLWR, {"members": members, "threshold": quorum(members), **arguments})


def _limit_figures(ours: dict[Key, Cell]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for (members, length, fault), cell in ours.items():
        if length != LONG:
            continue
        limit = Limit(cell["limit_keystream_s"], cell["limit_addition_s"])
        dropped, _ = _numbers(members, fault)
        for party, floor in (
            ("client", limit.client(members)),
            ("coordinator", limit.coordinator(members, dropped)),
        ):
            one, epoch = _without_tags(cell, party), cell[f"{party}_epoch_s"]
            figures[f"{party}_over_limit_{members}_{fault}"] = one / floor
            for name, ratio in (
                (f"{party}_over_limit", one / floor),
                (f"{party}_over_limit_with_epoch", (one + epoch) / floor),
            ):
                figures[name] = max(figures.get(name, 0.0), ratio)
        if (members, fault) == (100, "none"):
            figures["client_with_tags_over_limit_100"] = _with_tags_s(cell) / limit.client(members)
            figures[f"tag_ms_{LONG}"] = 1e3 * cell["client_data_tags_s"]
    return figures


def _without_tags(cell: Cell, party: str) -> float:
    """Return the CPU seconds of a party's sum without what a client does for tags."""
    return cell[f"{party}_sum_s"] - (cell["client_tags_s"] if party == "client" else 0.0)


def _with_tags_s(cell: Cell) -> float:
    """Return a client's CPU seconds of a sum with tags, from encoding to the verified total."""
    return cell["client_sum_s"] + cell["client_verify_s"]


def _flwr_figures(
    ours: dict[Key, Cell], clients: dict[tuple[int, int], Cell], servers: dict[Key, Cell]
) -> dict[str, float]:
    figures: dict[str, float] = {}
    for (members, length), cell in clients.items():
        if members == 100:
            ratio = _flwr_client_s(cell) / _whole(ours[members, length, "none"], "client")
            figures[f"flwr_over_client_{length}"] = ratio
    for (members, length, fault), cell in servers.items():
        if members == 100:
            ratio = cell["server_s"] / _whole(ours[members, length, fault], "coordinator")
            name = "flwr_over_coordinator" + ("" if fault == "none" else f"_{fault}")
            figures[name] = min(figures.get(name, ratio), ratio)
    return figures


def _whole(cell: Cell, party: str) -> float:
    return cell[f"{party}_epoch_s"] + cell[f"{party}_sum_s"]


def _flwr_client_s(cell: Cell) -> float:
    return sum(cell[stage] for stage in ("keys", "shares", "masking", "reveal"))


def _by_length(
    ours: dict[Key, Cell], clients: dict[tuple[int, int], Cell], servers: dict[Key, Cell]
) -> dict[int, dict[str, float]]:
    """Return each party's seconds for n = 100 without dropouts: ours, the limit's and flwr's."""
    sums: dict[int, dict[str, float]] = {}
    for key, cell in ours.items():
        members, length, fault = key
        if members != 100 or fault != "none":
            continue
        limit = Limit(cell["limit_keystream_s"], cell["limit_addition_s"])
        sums[length] = {
            "client": _whole(cell, "client"),
            "client_limit": limit.client(members),
            "client_flwr": _flwr_client_s(clients[members, length]),
            "coordinator": _whole(cell, "coordinator"),
            "coordinator_limit": limit.coordinator(members, 0),
        }
        if key in servers:
            sums[length]["coordinator_flwr"] = servers[key]["server_s"]
    return sums


def _print_table(
    ours: dict[Key, Cell], clients: dict[tuple[int, int], Cell], servers: dict[Key, Cell]
) -> None:
    """Print the CPU milliseconds per cell: ours, the limit's and flwr's."""
    print(f"{'':26}{'client':^36}{'coordinator':^36}")
    columns = ("epoch", "sum", "limit", "flwr") * 2
    print(f"{'n':>4}{'length':>10}  {'faults':10}" + "".join(f"{name:>9}" for name in columns))
    for key, cell in ours.items():
        members, length, fault = key
        limit = Limit(cell["limit_keystream_s"], cell["limit_addition_s"])
        dropped, _ = _numbers(members, fault)
        numbers: Iterable[float | None] = (
            cell["client_epoch_s"],
            cell["client_sum_s"],
            limit.client(members),
            _flwr_client_s(clients[members, length]),
            cell["coordinator_epoch_s"],
            cell["coordinator_sum_s"],
            limit.coordinator(members, dropped),
            servers[key]["server_s"] if key in servers else None,
        )
        print(
            f"{members:>4}{length:>10}  {fault:10}"
            + "".join(f"{'–' if s is None else format(1e3 * s, '.4g'):>9}" for s in numbers)
        )
    print("CPU milliseconds")
