"""How the commands of `veilgp` are listed: by sections, in the order in which a study needs one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup


@dataclass(frozen=True)
class Command:
    """One command: its words (`schema draft`), what it does in one line, and its function."""

    words: str
    summary: str
    run: Callable[..., Any]
    passes_on: bool = False
    """Whether all arguments are passed on to another package, which explains them itself."""


@dataclass(frozen=True)
class Section:
    """Commands that belong together."""

    title: str
    commands: tuple[Command, ...]


def application_of(sections: Sequence[Section], **options: Any) -> typer.Typer:
    """Return an application with these commands; those of two words are in a group."""

    class Listed(TyperGroup):
        def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
            width = max(len(each.words) for section in sections for each in section.commands)
            for section in sections:
                with formatter.section(section.title):
                    rows = [(each.words.ljust(width), each.summary) for each in section.commands]
                    formatter.write_dl(rows)

    app = _plain_typer(cls=Listed, **options)
    groups: dict[str, typer.Typer] = {}
    for section in sections:
        for command in section.commands:
            first, _, rest = command.words.partition(" ")
            if rest and first not in groups:
                groups[first] = _plain_typer()
                # A callback keeps it a group while it has only one command.
                groups[first].callback()(lambda: None)
                app.add_typer(groups[first], name=first)
            (groups[first] if rest else app).command(
                rest or first,
                short_help=command.summary,
                **(_PASSING_ON if command.passes_on else {}),
            )(command.run)
    return app


def _plain_typer(**options: Any) -> typer.Typer:
    """Return an application whose help and errors are plain text.

    Rich would read `[server]` as markup and swallow it, and takes longer to import than most
    commands take.
    """
    return typer.Typer(
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **options,
    )


_PASSING_ON: dict[str, Any] = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "add_help_option": False,
}
