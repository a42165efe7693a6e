"""`veilgp card MODEL`: the card of a saved model."""

from pathlib import Path
from typing import Annotated

import typer

from client_sdk.terminal.commands.failures import reported
from client_sdk.terminal.commands.model_options import RosterOption
from client_sdk.terminal.commands.session import HomeOption


def card(
    model: Annotated[Path, typer.Argument(help="The folder of the saved model.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the card as JSON.")] = False,
    roster: RosterOption = None,
    home: HomeOption = None,
) -> None:
    """Show what a saved model predicts, how well, how it was protected, and who signed it.

    A card that nobody known here vouches for is shown with a warning. Of a personal model it shows
    what it was made of.
    """
    from client_sdk.errors import ModelNotCertified
    from client_sdk.model.model import GlobalModel
    from client_sdk.model.personal.files import is_personal
    from client_sdk.model.personal.model import PersonalModel
    from client_sdk.readable import readable
    from privacy.securesum.errors import EndorsementError

    with reported():
        if is_personal(model):
            own = PersonalModel.load(model)
            typer.echo((model / "personal.json").read_text() if as_json else repr(own))
            return
        try:
            loaded = GlobalModel.load(model, roster=roster, home=home)
        except (ModelNotCertified, EndorsementError) as error:
            loaded = GlobalModel.load(model, uncertified=True)
            warning = (
                f"veilgp: not vouched for, believe it only if you know where it is from: {error}"
            )
            typer.echo(f"{readable(warning)} [{error.code}]", err=True)
        typer.echo(loaded.artifact.card.to_json() if as_json else repr(loaded.card))
