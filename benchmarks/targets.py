"""What a figure is asked to be, and the line that says whether it is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """What a figure is asked to be: at least or at most a bound."""

    figure: str
    bound: float
    at_least: bool = False

    def line(self, value: float | None) -> str:
        """Say whether it is held."""
        asked = f"{self.figure} {'≥' if self.at_least else '≤'} {self.bound:g}"
        if value is None:
            return f"- not measured: {asked}"
        held = value >= self.bound if self.at_least else value <= self.bound
        return f"- {'yes' if held else 'NO'}: {asked}, is {value:.4g}"
