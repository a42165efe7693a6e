"""A model in a folder: its tensors as safetensors, its card as JSON, and its certificate.

    stay/
      card.json                   what the model is; names the other files
      <sha-256>.safetensors       the model
      <model id>.certificate      the signatures of hospitals that vouch for it, if there are any

The other files are written first, under their own names; then the card is replaced in one step. A
crash at any moment leaves either the complete old model or the complete new one.
"""

import os
import re
import secrets
from pathlib import Path

from client_sdk.errors import ModelNotFound, ModelNotSaved
from kernels.errors import KernelsError
from kernels.model.artifact import Artifact
from kernels.model.card import Card

CARD = "card.json"
_OURS = re.compile(r"card\.json|[0-9a-f]{64}\.(safetensors|certificate)|\..+\.tmp")


def save(artifact: Artifact, certificate: bytes | None, folder: Path) -> None:
    """Write a model to a folder that is new, empty or holds an earlier model."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        foreign = sorted(each.name for each in folder.iterdir() if not _OURS.fullmatch(each.name))
        if foreign:
            raise ModelNotSaved(
                f"{folder} contains files that are not part of a model ({foreign[0]!r}): choose a "
                "new folder"
            )
        before = _card_before(folder)
        replace_file(folder / _bytes_name(artifact.card), artifact.to_bytes())
        if certificate is not None:
            replace_file(folder / _certificate_name(artifact.card), certificate)
        replace_file(folder / CARD, artifact.card.to_json().encode())
        kept = {_bytes_name(artifact.card)}
        if certificate is not None:
            kept.add(_certificate_name(artifact.card))
        stale = {_certificate_name(artifact.card)}
        if before is not None:
            stale |= {_bytes_name(before), _certificate_name(before)}
        for name in stale - kept:
            (folder / name).unlink(missing_ok=True)
    except OSError as problem:
        raise ModelNotSaved(
            f"cannot write the model to {folder}: {problem.strerror or problem}"
        ) from problem


def load(folder: Path) -> tuple[Artifact, bytes | None]:
    """Read the model in a folder, and its certificate if there is one; neither is trusted."""
    card = Card.from_json(_read(folder / CARD).decode(errors="replace"))
    artifact = Artifact.from_bytes(_read(folder / _bytes_name(card)), card)
    path = folder / _certificate_name(card)
    return artifact, _read(path) if path.exists() else None


def _bytes_name(card: Card) -> str:
    return f"{card.artifact}.safetensors"


def _certificate_name(card: Card) -> str:
    return f"{card.id}.certificate"


def _card_before(folder: Path) -> Card | None:
    try:
        return Card.from_json((folder / CARD).read_text(errors="replace"))
    except (FileNotFoundError, KernelsError):
        return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise ModelNotFound(
            f"cannot read a model from {path.parent}: {path.name} is missing or not readable "
            f"({problem.strerror or problem})"
        ) from problem


def replace_file(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Replace the content of a path in one step that survives a power failure.

    mode: who may use the file, before the process's umask.
    """
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    if os.name == "posix":  # elsewhere a folder cannot be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
