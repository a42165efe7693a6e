"""Growth of a cohort's costs with its size: straight lines through n = 10 … 200, and a picture."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.cells import Cell

GROWTH = (10, 30, 100, 200)
SLOPES = {
    "client_epoch_ms_per_member": ("client_epoch_s", 1e3),
    "client_sum_ms_per_member": ("client_sum_s", 1e3),
    "client_epoch_bytes_up_per_member": ("client_epoch_bytes_up", 1.0),
    "client_epoch_bytes_down_per_member": ("client_epoch_bytes_down", 1.0),
    "client_sum_bytes_up_per_member": ("client_sum_bytes_up", 1.0),
    "client_sum_bytes_down_per_member": ("client_sum_bytes_down", 1.0),
}


def growth_figures(growth: Mapping[int, Cell]) -> dict[str, float]:
    """Return the slope and R² of each cost of a client, and the coordinator's memory."""
    figures: dict[str, float] = {}
    for figure, (name, scale) in SLOPES.items():
        slope, fit = _line(growth, name)
        figures[figure] = scale * slope
        figures[figure.removesuffix("_per_member") + "_fit"] = fit
    for members, cell in growth.items():
        figures[f"coordinator_kept_bytes_{members}"] = cell["coordinator_kept_bytes"]
        figures[f"coordinator_peak_bytes_{members}"] = cell["coordinator_peak_bytes"]
    return figures


def plot(
    path: Path,
    sums: Mapping[int, Mapping[str, float]],
    growth: Mapping[int, Cell],
) -> None:
    """Plot the cost of a sum by length beside the limit and flwr (n = 100), and the growth with n.

    `sums` contains, by length, the seconds of `client`, `client_limit` and `client_flwr`, and the
    same for `coordinator`, if they were measured.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 4, figsize=(17, 4.2), layout="constrained")
    styles = {"": ("ours", "o-"), "_limit": ("limit", "k--"), "_flwr": ("flwr SecAgg+", "s-")}
    for panel, party in zip(panels[:2], ("client", "coordinator"), strict=True):
        for suffix, (label, style) in styles.items():
            lengths = [length for length, cell in sums.items() if party + suffix in cell]
            seconds = [sums[length][party + suffix] for length in lengths]
            panel.loglog(lengths, seconds, style, label=label)
        panel.set(title=f"{party}, n = 100, no dropouts", xlabel="length", ylabel="CPU s")
        panel.grid(visible=True, alpha=0.3)
        panel.legend()
    members = np.array(list(growth))
    for panel, title, unit, lines in (
        (
            panels[2],
            "growth of the work, length 10⁴",
            "CPU ms",
            {
                "client, epoch": ("client_epoch_s", 1e3),
                "client, each sum": ("client_sum_s", 1e3),
                "coordinator, each sum": ("coordinator_sum_s", 1e3),
            },
        ),
        (
            panels[3],
            "growth of the traffic, length 10⁴",
            "kB per client",
            {
                "epoch, up": ("client_epoch_bytes_up", 1e-3),
                "epoch, down": ("client_epoch_bytes_down", 1e-3),
                "each sum, up": ("client_sum_bytes_up", 1e-3),
                "each sum, down": ("client_sum_bytes_down", 1e-3),
            },
        ),
    ):
        for label, (name, scale) in lines.items():
            values = np.array([scale * cell[name] for cell in growth.values()])
            (dots,) = panel.plot(members, values, "o", label=label)
            slope, intercept = np.polyfit(members, values, 1)
            panel.plot(members, slope * members + intercept, "-", color=dots.get_color(), alpha=0.5)
        panel.set(title=title, xlabel="members", ylabel=unit, ylim=(0, None))
        panel.grid(visible=True, alpha=0.3)
        panel.legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _line(growth: Mapping[int, Cell], name: str) -> tuple[float, float]:
    """Return the slope and R² of the least-squares line of a cost over the number of members."""
    members = np.array(list(growth), dtype=float)
    values = np.array([cell[name] for cell in growth.values()])
    slope, intercept = np.polyfit(members, values, 1)
    residual = values - slope * members - intercept
    return float(slope), 1.0 - float(np.sum(residual**2) / np.sum((values - values.mean()) ** 2))
