"""An admin downloads a model from the page, where the coordinator has it; otherwise it says why."""

import io
import zipfile
from pathlib import Path

from sqlalchemy import update

from client_sdk import GlobalModel
from service.database import tables
from tests.certified import certificate_of, signable
from tests.kernels.rounds import artifacts
from tests.service.coordinator import Coordinator
from tests.service.page.browsing import page, signed_in
from tests.service.stored import add_model, add_sealed

LINK = "Download the model</a>"


def test_what_is_downloaded_is_a_folder_that_the_sdk_reads(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    session, cookie = coordinator.session(), signed_in(coordinator)
    model = add_model(coordinator, artifacts.artifact(), session)
    at = f"/view/models/{model}"
    shown = page(coordinator, at, cookie).text
    assert LINK in shown
    assert "a caller gets it from the API only where" in shown
    answer = page(coordinator, f"{at}/folder", cookie)
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{model}.zip"'
    zipfile.ZipFile(io.BytesIO(answer.content)).extractall(tmp_path)
    assert GlobalModel.load(tmp_path / model, uncertified=True).id == model
    assert page(coordinator, f"{at}/folder", None).headers["Location"] == "/", "signed out"


def test_a_model_that_is_not_here_or_damaged_has_no_link_and_says_why(
    coordinator: Coordinator,
) -> None:
    session, cookie = coordinator.session(), signed_in(coordinator)
    sealed = add_sealed(coordinator, session, certificate_of(signable(artifacts.artifact())))
    at = f"/view/models/{sealed}"
    shown = page(coordinator, at, cookie).text
    assert LINK not in shown
    assert "this coordinator never had it" in shown
    assert page(coordinator, f"{at}/folder", cookie).status_code == 409
    model = add_model(coordinator, artifacts.artifact(), session)
    with coordinator.context.database.changing() as connection:
        damaged = update(tables.models).where(tables.models.c.id == model)
        connection.execute(damaged.values(card="{}"))
    shown = page(coordinator, f"/view/models/{model}", cookie).text
    assert LINK not in shown
    assert "the model is damaged" in shown
    assert page(coordinator, f"/view/models/{model}/folder", cookie).status_code == 500
