"""A personal model in a folder that is for its owner alone, and that says what it is.

    mine/
      personal.json               marks it as personal: what it was made of, and what it is worth
      <sha-256>.safetensors       the model

Its layers are sums over one hospital's rows: with few rows, single patients can be told from them.
So it must not leave the hospital. The folder is made 0700 and its files 0600, and a folder that
other users can read is not loaded. No coordinator takes it, and it has no certificate.
"""

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from client_sdk.errors import ModelNotFound, ModelNotSaved, PersonalDamaged, PersonalExposed
from client_sdk.model.files import replace_file
from client_sdk.model.personal.gain import PersonalGain
from kernels.errors import KernelsError
from kernels.model.model import Model, check_fitted
from kernels.model.stored import MODEL_KINDS
from kernels.model.typed_json import from_plain, to_plain
from kernels.storage import decode, encode, kinds_of
from kernels.strict_json import encode_json, parse_json

CARD = "personal.json"
FORMAT = "veilgp personal model"
VERSION = 1
NOTICE = (
    "This model is personal: it was fitted to the rows of one hospital, and single patients can be "
    "told from it. It must not leave the hospital. The global model is the one to share."
)

_OURS = re.compile(r"personal\.json|[0-9a-f]{64}\.safetensors|\..+\.tmp")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, kw_only=True)
class PersonalCard:
    """What a personal model was made of.

    global_model: the id of the model whose kernel it has. start, power: as in
    `client_sdk.model.personal.layers`. rows: this hospital's training rows. gain: None if there was
    nothing to compare. layers: SHA-256 of the model's bytes, in hex.
    """

    global_model: str
    start: str
    power: float
    rows: int
    gain: PersonalGain | None
    layers: str


def is_personal(folder: Path) -> bool:
    """Return whether a folder has a personal model."""
    return (folder / CARD).exists()


def bytes_of(model: Model) -> tuple[bytes, str]:
    """Return a model's bytes and their SHA-256 in hex."""
    data = encode(model)
    return data, hashlib.sha256(data).hexdigest()


def save(model: Model, card: PersonalCard, folder: Path) -> None:
    """Write a personal model to a folder that is new, empty or has an earlier one."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        foreign = sorted(each.name for each in folder.iterdir() if not _OURS.fullmatch(each.name))
        if foreign:
            raise ModelNotSaved(
                f"{folder} contains files that are not part of a personal model ({foreign[0]!r}): "
                "choose a new folder"
            )
        if os.name == "posix":
            folder.chmod(0o700)
        data, digest = bytes_of(model)
        written = {"format": FORMAT, "version": VERSION, "notice": NOTICE, **to_plain(card)}
        replace_file(folder / f"{digest}.safetensors", data, mode=0o600)
        replace_file(folder / CARD, encode_json(written).encode(), mode=0o600)
        for old in folder.glob("*.safetensors"):
            if old.stem != digest:
                old.unlink()
    except OSError as problem:
        raise ModelNotSaved(
            f"cannot write the personal model to {folder}: {problem.strerror or problem}"
        ) from problem


def load(folder: Path) -> tuple[Model, PersonalCard]:
    """Read the personal model in a folder."""
    _check_private(folder)
    text = _read(folder / CARD).decode(errors="replace")
    wrong: list[str] = []
    plain = parse_json(text, CARD, wrong)
    if wrong or not isinstance(plain, dict) or plain.pop("format", None) != FORMAT:
        raise PersonalDamaged(
            f"{folder / CARD} does not describe a personal model: make it again with "
            "`veilgp personal`"
        )
    if (version := plain.pop("version", None)) != VERSION:
        raise PersonalDamaged(
            f"the personal model in {folder} has version {version!r:.20}, and this veilgp reads "
            f"{VERSION}: make it again with `veilgp personal`"
        )
    plain.pop("notice", None)
    try:
        card: PersonalCard = from_plain(PersonalCard, plain, CARD)
    except KernelsError as problem:
        raise PersonalDamaged(
            f"{folder / CARD} is damaged ({problem}): make it again with `veilgp personal`"
        ) from problem
    data = _read(folder / f"{card.layers}.safetensors")
    if hashlib.sha256(data).hexdigest() != card.layers:
        raise PersonalDamaged(
            f"the bytes of the personal model in {folder} are damaged: make it again with "
            "`veilgp personal`"
        )
    try:
        model = decode(data, kinds_of(*MODEL_KINDS))
        if not isinstance(model, Model):
            raise PersonalDamaged(f"{folder} contains a {type(model).__name__}, not a model")
        check_fitted(model)
    except KernelsError as problem:
        raise PersonalDamaged(
            f"the personal model in {folder} cannot be read ({problem}): make it again with "
            "`veilgp personal`"
        ) from problem
    return model, card


def _check_private(folder: Path) -> None:
    """Refuse a personal model that other users of the machine can read."""
    if os.name != "posix" or not folder.is_dir():
        return
    for path in (folder, *folder.iterdir()):
        if path.stat().st_mode & _OTHERS:
            raise PersonalExposed(
                f"other users can read or change {path}. A personal model has the influence of "
                f"single rows: look at who may have read it, then chmod -R go= {folder}"
            )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise ModelNotFound(
            f"cannot read a personal model from {path.parent}: {path.name} is missing or not "
            f"readable ({problem.strerror or problem})"
        ) from problem
