"""How long a run waits for its members, and for what: moments in seconds, or ∞.

    gathered   an epoch opens
    restart    an epoch is given up before it has summed
    settled    the survivors of a sum are settled
    repair     shares of a silent survivor's key are asked for
    lost       a sum is given up, with differential privacy

Without differential privacy only restart and repair are a matter of time.
"""

import math
from typing import TYPE_CHECKING

from service.runs.machine import attendance

if TYPE_CHECKING:
    from service.runs.machine.run import Run


class Waits:
    """The waits of a run as it is now."""

    def __init__(self, run: "Run") -> None:
        self._run = run

    @property
    def due_at(self) -> float:
        """When the first of them is over."""
        return min(self.gathered_at, self.restart_at, self.settled_at, self.repair_at, self.lost_at)

    @property
    def gathered_at(self) -> float:
        """When an epoch opens: with all, at once; with differential privacy with enough, later."""
        if self._run.outcome is not None or self._run.epoch.epoch is not None:
            return math.inf
        if self._run.epoch.advertised >= self._run.attendance.expected(self._run.epoch):
            return self._run.since
        few = self._run.is_private and self._run.attendance.can_open(self._run.epoch)
        return self._run.since + self._run.plan.gather_s if few else math.inf

    @property
    def restart_at(self) -> float:
        """When an epoch is not waited for any longer: for its boxes, or because members refuse."""
        epoch, refused = self._run.epoch.epoch, self._run.attendance.refused
        if epoch is None:
            return self._run.since if refused & self._run.epoch.advertised else math.inf
        missing = {epoch.members[rank] for rank in self._run.epoch.missing_boxes}
        if missing & refused:
            return self._run.since
        patience = (
            self._run.plan.leave_out_after_s
            if self._run.is_private
            else self._run.plan.restart_after_s
        )
        moment = self._run.since + patience
        in_time = moment + patience <= self._run.plan.deadline_at
        return moment if missing and in_time else math.inf

    @property
    def settled_at(self) -> float:
        """When the survivors of a sum are settled: with all vectors, or with enough, later."""
        slot = self._run.slot
        if slot is None or slot.proposal is not None or slot.abandoning:
            return math.inf
        if not slot.dropped:
            return self._run.since
        if not self._run.is_private or not attendance.enough(slot):
            return math.inf
        waiting = bool(self._run.attendance.missing(slot))
        return self._run.since + self._run.plan.leave_out_after_s if waiting else self._run.since

    @property
    def repair_at(self) -> float:
        """When a survivor has been silent for too long; shares cannot replace its pair keys."""
        slot = self._run.slot
        certified = slot is not None and slot.certificate is not None and not slot.has_all_keys
        if slot is None or not certified or self._run.repairing or slot.dropped:
            return math.inf
        return self._run.since + self._run.plan.repair_after_s

    @property
    def lost_at(self) -> float:
        """When a sum is given up, with differential privacy, if another has as much time as this.

        That too few upload is no reason: who comes back can, and a repeat costs as much again. Nor
        is a sum given up that the budget does not allow twice: it may still be finished.
        """
        slot, spending = self._run.slot, self._run.spending
        if slot is None or not self._run.is_private or slot.has_all_keys:
            return math.inf
        if slot.proposal is None:
            return (
                math.inf if attendance.is_possible(self._run.attendance, slot) else self._run.since
            )
        moment = self._run.since + self._run.plan.restart_after_s
        in_time = moment + self._run.plan.restart_after_s <= self._run.plan.deadline_at
        affordable = in_time and spending is not None and spending.can_repeat
        return moment if affordable else math.inf
