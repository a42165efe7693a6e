"""One line of `veilgp doctor`, at a hospital or at the coordinator.

It is in this package because hospital and coordinator both import it, and neither imports the
other.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One check: `said` is what was found, `fix` what to do, or None if nothing is wrong."""

    name: str
    said: str
    fix: str | None = None

    @property
    def is_well(self) -> bool:
        """Whether nothing is wrong."""
        return self.fix is None

    def line(self) -> str:
        """Return the check as a line for people to read."""
        said = " ".join(self.said.split())
        if self.fix is None:
            return f"ok    {self.name}: {said}"
        return f"FAIL  {self.name}: {said.rstrip('.')}. Fix: {self.fix}"
