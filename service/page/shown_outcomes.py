"""Scores of outcomes on the page: a row of the table and a reliability plot for each of them."""

from dataclasses import dataclass

from markupsafe import Markup

from kernels.model.judged_outcome import JudgedOutcome
from service.page.plots import reliability_plot


@dataclass(frozen=True)
class ShownOutcome:
    """One outcome's scores as the page shows them, of what is served."""

    judged: JudgedOutcome

    @property
    def name(self) -> str:
        """The name of the target."""
        return self.judged.name

    @property
    def kind(self) -> str:
        """The kind of the target."""
        return self.judged.kind

    @property
    def log_loss(self) -> str:
        """The log loss of what is served."""
        return f"{self.judged.log_loss:.4g}"

    @property
    def raw_log_loss(self) -> str:
        """The log loss before recalibration."""
        return f"{self.judged.raw_log_loss:.4g}"

    @property
    def further(self) -> str:
        """The other scores of its kind with their names."""
        found = self.judged.further.items()
        return ", ".join(f"{name} {'–' if own is None else f'{own:.4g}'}" for name, own in found)

    @property
    def ece(self) -> str:
        """The mean distance of probabilities from what was observed; a count has none."""
        own = self.judged.further.get("ECE")
        return "–" if own is None else f"{own:.4g}"

    def coverage(self, level: float) -> str:
        """Return the share of rows in their sets or intervals."""
        inside = self.judged.inside(level)
        return "–" if inside is None else f"{inside:.1%}"

    @property
    def plot(self) -> Markup:
        """What was observed by what was predicted.

        The observed risk of a time to an event is Kaplan–Meier's estimate, and a count is no share:
        the bars of shares are not theirs.
        """
        curve, kind = self.judged.quality.curve, self.kind
        return reliability_plot(
            self.name,
            curve.predicted,
            curve.observed,
            curve.rows,
            shares=kind != "count",
            bars=kind in ("binary", "classes"),
        )
