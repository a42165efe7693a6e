"""`veilgp verify`: who vouches for a model, in plain words and as JSON; `predict` asks the same."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from client_sdk import GlobalModel
from client_sdk.terminal.command import application
from kernels.model.artifact import Artifact
from privacy.identity import Identity
from privacy.members.endorsement import ModelCertificate
from tests.certified import HOSPITALS, NAMES, ROSTER, certificate_of, signable
from tests.kernels.rounds import tables
from tests.kernels.rounds.artifacts import PLAIN, artifact

ARTIFACT = signable(artifact())
CERTIFICATE = certificate_of(ARTIFACT)


@pytest.fixture(autouse=True)
def _no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEILGP_HOME", str(tmp_path / "home"))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(application(), [str(each) for each in arguments])


def roster(folder: Path, *names: str) -> Path:
    members = [{"name": name, "key": ROSTER[name].hex()} for name in names]
    path = folder / "roster.json"
    path.write_text(json.dumps({"members": members}))
    return path


def saved(
    folder: Path, certificate: ModelCertificate | None = CERTIFICATE, found: Artifact = ARTIFACT
) -> Path:
    GlobalModel(found, certificate).save(folder / "model")
    return folder / "model"


def test_it_names_who_vouches_for_what_and_what_nobody_does(tmp_path: Path) -> None:
    outcome = run("verify", saved(tmp_path), "--roster", roster(tmp_path, *NAMES))
    assert outcome.exit_code == 0, outcome.output
    text = " ".join(outcome.stdout.split())
    for name, identity in zip(NAMES, HOSPITALS, strict=True):
        assert f"{name} {identity.fingerprint}" in text
    for part in (
        f"Model {ARTIFACT.id}",
        "by 5 of the 5 hospitals that trained it; at least 4 had to",
        "session 00000000-0000-0000-0000-000000000000",
        ARTIFACT.card.program_digest,
        "parent none",
        f"{ARTIFACT.card.rows:,} training rows: signed, and equal to the card's",
        "not covered the date",
        "ε and δ",
        "each site's own word",
    ):
        assert part in text
    assert "unknown" not in text
    assert max(map(len, outcome.stdout.splitlines())) <= 100


def test_signers_outside_the_roster_are_counted_and_not_named(tmp_path: Path) -> None:
    outcome = run("verify", saved(tmp_path), "--roster", roster(tmp_path, *NAMES[:4]))
    assert outcome.exit_code == 0, outcome.output
    assert "1 further signature(s)" in outcome.stdout
    assert HOSPITALS[4].fingerprint not in outcome.stdout
    assert "Évora" not in outcome.stdout


def test_the_same_as_json(tmp_path: Path) -> None:
    folder, known = saved(tmp_path), roster(tmp_path, *NAMES[:4])
    plain = json.loads(run("verify", folder, "--roster", known, "--json").stdout)
    assert plain["vouched"] is True
    assert plain["model"] == ARTIFACT.id
    assert [each["name"] for each in plain["vouching"]] == list(NAMES[:4])
    assert plain["unknown_signers"] == 1
    assert plain["needed"] == 4
    assert plain["results_signed"] is True
    refused = run("verify", folder, "--roster", roster(tmp_path, "Cork"), "--json")
    assert refused.exit_code == 1
    said = json.loads(refused.stdout)
    assert (said["vouched"], said["code"]) == (False, "model.not_vouched")


def test_a_program_that_releases_nothing_is_said_to(tmp_path: Path) -> None:
    found = signable(artifact(PLAIN))
    folder = saved(tmp_path, certificate_of(found), found)
    outcome = run("verify", folder, "--roster", roster(tmp_path, *NAMES))
    assert "not signed: the program releases none" in outcome.stdout


_REFUSED = {
    "model.not_certified": None,
    "model.not_vouched": certificate_of(ARTIFACT, [Identity.generate() for _ in range(5)]),
    "model.not_the_endorsed": certificate_of(signable(artifact(PLAIN))),
    "model.too_few_endorsements": certificate_of(ARTIFACT, HOSPITALS[:3]),
    "model.forged_endorsement": replace(
        CERTIFICATE, signatures=(*CERTIFICATE.signatures[:4], CERTIFICATE.signatures[0])
    ),
    "model.card_differs": certificate_of(ARTIFACT, results=b"{}"),
}


@pytest.mark.parametrize("code", _REFUSED)
def test_what_is_not_vouched_for_fails_by_name(tmp_path: Path, code: str) -> None:
    folder, known = saved(tmp_path, _REFUSED[code]), roster(tmp_path, *NAMES)
    outcome = run("verify", folder, "--roster", known)
    assert outcome.exit_code == 1
    assert outcome.stdout == ""
    assert f"[{code}]" in outcome.stderr
    rows = tmp_path / "rows.csv"
    pd.DataFrame(tables.table(5, seed=9)).to_csv(rows, index=False)
    assert f"[{code}]" in run("predict", folder, rows, "--roster", known).stderr
    assert run("predict", folder, rows, "--uncertified").exit_code == 0
    card = run("card", folder, "--roster", known)
    assert card.exit_code == 0
    assert f"[{code}]" in card.stderr


def test_a_verifier_may_assume_more_colluders_than_the_session(tmp_path: Path) -> None:
    folder, known = saved(tmp_path), roster(tmp_path, *NAMES)
    assert run("verify", folder, "--roster", known, "--max-colluders", 4).exit_code == 0
    refused = run("verify", folder, "--roster", known, "--max-colluders", 5)
    assert "[model.not_vouched]" in refused.stderr


def test_without_a_roster_or_a_home_nobody_is_known(tmp_path: Path) -> None:
    refused = run("verify", saved(tmp_path))
    assert "[model.not_vouched]" in refused.stderr
    assert not (tmp_path / "home").exists()


def test_a_signed_model_predicts_and_its_card_names_the_signers(tmp_path: Path) -> None:
    folder, known = saved(tmp_path), roster(tmp_path, *NAMES)
    rows = tmp_path / "rows.csv"
    pd.DataFrame(tables.table(5, seed=9)).to_csv(rows, index=False)
    assert run("predict", folder, rows, "--roster", known).exit_code == 0
    card = run("card", folder, "--roster", known)
    assert "Aarhus" in card.stdout
    assert card.stderr == ""
