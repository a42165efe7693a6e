"""Scores of outcomes on the page: a row of the table and a reliability plot for each of them."""

from dataclasses import dataclass

from markupsafe import Markup

from kernels.model.figures import figure, share
from kernels.model.judged_outcome import JudgedOutcome
from kernels.model.score_errors import OutcomeErrors
from kernels.scores.metrics import LEVELS
from service.page.plots import reliability_plot


@dataclass(frozen=True)
class ShownOutcome:
    """One outcome's scores as the page shows them, of what is served."""

    judged: JudgedOutcome
    errors: OutcomeErrors | None = None
    """Standard errors from the noise of differential privacy."""

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
        off = self.errors
        return figure(self.judged.log_loss, None if off is None else off.log_loss)

    @property
    def raw_log_loss(self) -> str:
        """The log loss before recalibration."""
        off = self.errors
        return figure(self.judged.raw_log_loss, None if off is None else off.raw_log_loss)

    @property
    def further(self) -> str:
        """The other scores of its kind with their names."""
        return ", ".join(f"{name} {own}" for name, own in self._further.items())

    @property
    def ece(self) -> str:
        """The mean distance of probabilities from what was observed; a count has none."""
        return self._further.get("ECE", "–")

    @property
    def _further(self) -> dict[str, str]:
        found = self.judged.further
        off = (None,) * len(found) if self.errors is None else self.errors.further
        return {name: figure(own, o) for (name, own), o in zip(found.items(), off, strict=True)}

    def coverage(self, level: float) -> str:
        """Return the share of rows in their sets or intervals."""
        off = None if self.errors is None else self.errors.inside
        return share(self.judged.inside(level), None if off is None else off[LEVELS.index(level)])

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
