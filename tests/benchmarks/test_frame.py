"""Benchmarks are listed, end with one JSON line, and leave their result behind."""

import json
from argparse import Namespace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from benchmarks import __main__ as command
from benchmarks import registry


def test_without_a_name_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(registry.NAMES)
    assert all(len(line.split()) > 3 for line in lines)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SystemExit):
        command.main(["no_such_benchmark"])


def test_the_demos_picture_shows_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[list[int]] = []

    def count_points(figure: Figure, *_: object, **__: object) -> Path:
        lines = [axis.lines[-1] for axis in figure.axes[:2]]
        shown.append([len(line.get_xdata()) for line in lines])
        return Path("nowhere")

    monkeypatch.setattr("benchmarks.synthetic.save", count_points)
    figures = registry.load("synthetic").run(Namespace(quick=True))
    assert figures["federated_over_pooled_gap_sd"] < 1e-9
    ((alone, both),) = shown
    assert 50 < alone < both == 200


def test_a_new_client_from_elsewhere_spoils_every_way_but_the_sums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchmarks.synthetic.save", lambda *_, **__: Path("nowhere"))
    figures = registry.load("synthetic").run(Namespace(quick=True))
    for rows in (5, 200):
        ours = figures[f"mse_fedbnr_elsewhere_{rows}"]
        assert ours < 0.1 * figures[f"mse_pfedgp_elsewhere_{rows}"]
        assert ours < 0.5 * figures[f"mse_fedloc_elsewhere_{rows}"]


def test_a_run_ends_with_one_json_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("benchmarks.__main__", "benchmarks.pictures"):
        monkeypatch.setattr(f"{module}.RESULTS", tmp_path)
    assert command.main(["synthetic", "--quick", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    result = json.loads(line)
    assert result["name"] == "synthetic"
    assert result["figures"]["federated_over_pooled_gap_sd"] < 1e-9
    assert result["figures"]["rmse_federated"] < result["figures"]["rmse_client_1_alone"]
    assert (tmp_path / "synthetic.quick.json").read_text() == line + "\n"
    assert (tmp_path / "synthetic.quick.png").stat().st_size > 10_000
