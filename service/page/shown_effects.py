"""The effects of a model's columns as the page shows them, one section for each target."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from kernels.model.effects import ROWS, ColumnEffect
from kernels.tables.targets import AnyTarget, Binary, Classes, Count, TimeToEvent
from service.page.effect_plots import (
    MOST_LEVELS,
    STYLES,
    effect_plot,
    importance_plot,
    limits,
    percent,
)

FIRST = 6
"""The number of curves that are shown without being asked for."""


@dataclass(frozen=True)
class ShownEffects:
    """What the columns do to one target, the most important first.

    columns: of the model, of which the most important ones are in `each`.
    """

    target: AnyTarget
    each: tuple[ColumnEffect, ...]
    columns: int

    rows = ROWS

    @property
    def quantity(self) -> str:
        """What the height of a curve is."""
        own = self.target
        match own:
            case Binary():
                return f"probability of {own.name} = {own.event}"
            case Classes():
                return f"probability of each level of {own.name}"
            case Count():
                return f"expected number of {own.name}, for an exposure of 1"
            case TimeToEvent():
                return f"risk of {own.event} by {own.risk_at:g} {own.unit}"
        return own.name if own.unit == "1" else f"{own.name} in {own.unit}"

    @property
    def key(self) -> list[tuple[int, str]]:
        """The style and the name of each curve, of classes."""
        levels = self.target.levels if isinstance(self.target, Classes) else ()
        return [(place % STYLES, name) for place, name in enumerate(levels[:MOST_LEVELS])]

    @property
    def summary(self) -> str:
        """The most important columns with their shares."""
        return ", ".join(f"{name} {total}" for name, _, total in self.table[:4])

    @property
    def importance(self) -> Markup:
        """The bars of all columns that are shown."""
        names, alone, total = zip(*self._shares(), strict=True)
        return importance_plot(self.target.name, names, alone, total)

    @property
    def table(self) -> list[tuple[str, str, str]]:
        """For each column: name, share alone, share with interactions."""
        return [(name, percent(alone), percent(total)) for name, alone, total in self._shares()]

    @property
    def first(self) -> list[Markup]:
        """The curves of the most important columns."""
        return self._curves[:FIRST]

    @property
    def others(self) -> list[Markup]:
        """All other curves."""
        return self._curves[FIRST:]

    @property
    def _curves(self) -> list[Markup]:
        shares = isinstance(self.target, Binary | Classes | TimeToEvent)
        effects = [own.of(self.target.name) for own in self.each]
        heights = limits(effects, shares=shares)
        return [
            effect_plot(own, effect, heights, shares=shares)
            for own, effect in zip(self.each, effects, strict=True)
        ]

    def _shares(self) -> Iterator[tuple[str, float, float]]:
        for own in self.each:
            effect = own.of(self.target.name)
            yield own.column.name, effect.alone, effect.total


def shown_effects(found: Sequence[ColumnEffect], columns: int) -> list[ShownEffects]:
    """Return what is shown for each target; nothing without effects."""
    if not found:
        return []
    names = [own.target.name for own in found[0].targets]
    return [
        ShownEffects(
            found[0].of(name).target,
            tuple(sorted(found, key=lambda own, of=name: -own.of(of).total)),  # type: ignore[misc]
            columns,
        )
        for name in names
    ]
