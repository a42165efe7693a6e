"""`veilgp verify MODEL`: who vouches for a saved model, and for what."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from client_sdk.terminal.commands.failures import reported
from client_sdk.terminal.commands.model_options import ModelArgument, RosterOption
from client_sdk.terminal.commands.session import HomeOption

if TYPE_CHECKING:
    from client_sdk.model.vouching import Vouching
    from kernels.model.artifact import Artifact

_WIDTH = 100
_INDENT = 14


def verify(
    model: ModelArgument,
    *,
    roster: RosterOption = None,
    home: HomeOption = None,
    max_colluders: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="How many of its signers might collude: one more of those you trust must vouch. "
            "By default that of the model's session, and at least 1.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Say which hospitals vouch for a saved model, and for what.

    The exit status is 0 if enough hospitals of the roster have signed exactly this model, and 1
    otherwise.
    """
    with reported():
        try:
            artifact, found, source = _verified(model, roster, home, max_colluders)
        except _refusals() as error:
            if as_json:
                said = {"vouched": False, "code": error.code, "reason": str(error)}
                typer.echo(json.dumps(said, ensure_ascii=False, indent=2))
                raise typer.Exit(1) from error
            raise
        if as_json:
            typer.echo(json.dumps(_plain(artifact, found), ensure_ascii=False, indent=2))
            return
        for line in _lines(artifact, found, source):
            typer.echo(line)


def _refusals() -> tuple[type[Any], ...]:
    from client_sdk.errors import ClientError
    from kernels.errors import KernelsError
    from privacy.errors import PrivacyError

    return ClientError, KernelsError, PrivacyError


def _verified(
    folder: Path, roster: Path | None, home: Path | None, max_colluders: int | None
) -> tuple["Artifact", "Vouching", str]:
    from client_sdk.errors import ModelNotCertified
    from client_sdk.model import files
    from client_sdk.model.known_members import known_members
    from client_sdk.model.vouching import read_certificate, vouched_for

    members = known_members(roster, home)
    artifact, data = files.load(folder)
    if data is None:
        raise ModelNotCertified(
            f"the model in {folder} has no certificate: no hospital vouches for it"
        )
    certificate = read_certificate(data, artifact)
    found = vouched_for(certificate, members, max_colluders=max_colluders)
    return artifact, found, members.source


def _plain(artifact: "Artifact", found: "Vouching") -> Mapping[str, Any]:
    from uuid import UUID

    from client_sdk.model.vouching import NOT_COVERED
    from privacy.identity import fingerprint

    said = found.certificate.statement
    return {
        "vouched": True,
        "model": artifact.id,
        "vouching": [
            {"name": name, "key": key.hex(), "fingerprint": fingerprint(key)}
            for name, key in found.vouching
        ],
        "unknown_signers": len(found.unknown),
        "needed": found.needed,
        "members": said.members,
        "max_colluders": said.max_colluders,
        "session": str(UUID(bytes=said.session)),
        "run": str(UUID(bytes=said.run)),
        "program": said.program.hex(),
        "parent": artifact.card.parent,
        "results_signed": found.results is not None,
        "not_covered": list(NOT_COVERED),
    }


def _lines(artifact: "Artifact", found: "Vouching", source: str) -> Iterator[str]:
    from client_sdk.model.vouching import NOT_COVERED
    from client_sdk.readable import readable

    plain, results = _plain(artifact, found), found.results
    yield f"Model {artifact.id}"
    width = max(len(readable(name)) for name, _ in found.vouching)
    yield from _said(
        "vouched for",
        f"by {len(found.vouching)} of the {plain['members']} hospitals that trained it; at least "
        f"{found.needed} had to. It is exactly the model that they have computed themselves, or "
        f"accepted from {plain['max_colluders'] + 1} hospitals that had.",
    )
    for each in plain["vouching"]:
        yield f"{'':{_INDENT}}{readable(each['name']):<{width}}  {each['fingerprint']}"
    if found.unknown:
        yield from _said(
            "unknown",
            f"{len(found.unknown)} further signature(s), by keys that are not in "
            f"{readable(source)}: they do not count.",
        )
    yield from _said("session", f"{plain['session']}, run {plain['run']}")
    yield from _said("program", f"{plain['program']} (SHA-256), that of the card")
    yield from _said("parent", plain["parent"] or "none: it was trained from the start")
    yield from _said(
        "results",
        "not signed: the program releases none"
        if results is None
        else f"scores on {results.evaluation.rows:,} held-out rows, and {results.rows:,} training "
        "rows: signed, and equal to the card's",
    )
    yield from _said("not covered", "; ".join(NOT_COVERED))


def _said(name: str, text: str) -> Iterator[str]:
    lead = f"  {name:<{_INDENT - 2}}"
    yield from fill(text, _WIDTH, initial_indent=lead, subsequent_indent=" " * _INDENT).splitlines()
