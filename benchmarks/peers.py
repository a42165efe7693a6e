"""The Python environment of the peers we compare with: their pinned versions conflict with ours."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

PYTHON = Path(__file__).parents[1] / ".venv-peers" / "bin" / "python"


def require_peers() -> None:
    """End the benchmark with a message on what to run if the peers are not installed."""
    if not PYTHON.exists():
        raise SystemExit(
            "flwr is not installed: run `make .venv-peers/.installed`, or `make bench`"
        )


def run_peer(script: Path, arguments: Mapping[str, object]) -> dict[str, float]:
    """Run a script with the peers' Python and return the figures of its last line, a JSON object.

    The script must not be named after the peer: its own folder comes first in Python's import path.
    """
    shown = subprocess.run(
        [PYTHON, script, json.dumps(arguments)], capture_output=True, check=False, text=True
    )
    if shown.returncode != 0:
        raise SystemExit(f"{script.name} ended with {shown.returncode}:\n{shown.stderr}")
    figures: dict[str, float] = json.loads(shown.stdout.splitlines()[-1])
    return figures
