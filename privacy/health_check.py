"""One line of `veilgp doctor`, at a hospital or at the coordinator.

It stands here because both halves import this room, and neither imports the other.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One line: `said` is what was found, `fix` what to do about it, if anything is wrong."""

    name: str
    said: str
    fix: str | None = None

    @property
    def is_well(self) -> bool:
        """Whether there is nothing to do."""
        return self.fix is None

    def line(self) -> str:
        """Show it to a person."""
        said = " ".join(self.said.split())
        if self.fix is None:
            return f"ok    {self.name}: {said}"
        return f"FAIL  {self.name}: {said.rstrip('.')}. Fix: {self.fix}"
