"""The newest closed sum of a run: what members need to verify its total and replay its update."""

from dataclasses import dataclass

from privacy.securesum.summation import Summation


@dataclass(frozen=True)
class ClosedSum:
    """A sum whose total led to the run's present state; all of it as it is sent.

    epoch: the epoch's number. body: the total's integers, which are sent next to its message.
    """

    epoch: int
    slot: int
    task: bytes
    certificate: bytes
    total: bytes
    body: bytes

    @classmethod
    def of(cls, slot: Summation) -> "ClosedSum":
        """Return a sum whose keys have all arrived."""
        total, body = slot.total_message()
        certificate = b"" if slot.certificate is None else slot.certificate.encode()
        return cls(
            epoch=slot.epoch.number,
            slot=slot.task.slot,
            task=slot.task.encode(),
            certificate=certificate,
            total=total.encode(),
            body=bytes(body),
        )
