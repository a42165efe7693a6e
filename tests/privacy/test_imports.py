"""Importing `privacy` does not load the libraries that only differential privacy needs."""

import subprocess
import sys


def test_privacy_is_imported_without_torch_opacus_opendp_or_scipy() -> None:
    program = (
        "import sys; import privacy.ledger, privacy.noise, privacy.securesum.simulator; "
        "from privacy.accounting import cost, planning; "
        "sys.exit(', '.join({'torch', 'opacus', 'opendp', 'scipy'} & sys.modules.keys()) or None)"
    )
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
