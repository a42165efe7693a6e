"""`python -m benchmarks NAME [--quick] [--json] [--data DIR] …`; without a name, a list.

Each run ends with one JSON line {"name": …, "figures": {…}}, also written to
`benchmarks/results/NAME.json` (`NAME.quick.json` with --quick); --json prints that line alone.
"""

import argparse
import contextlib
import io
import json
import os
import sys
from pathlib import Path

from benchmarks.registry import NAMES, RESULTS, load, summary

# One thread, set before any library starts its own: on two noisy cores waiting threads spin, and
# CPU seconds would measure other processes. A benchmark that needs more threads sets this itself.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=NAMES)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, the same figures")
    parser.add_argument("--json", action="store_true", help="print nothing but the JSON line")
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/data"), help="folder of the real data sets"
    )
    parser.add_argument("--anew", action="store_true", help="forget cells that are kept")
    parser.add_argument("--only", default="", help="measure cells with this in their name only")
    parser.add_argument(
        "--as-printed", action="store_true", help="predictive: as the papers' tables were made"
    )
    options = parser.parse_args(arguments)
    if options.name is None:
        for name in NAMES:
            print(f"{name:16} {summary(load(name))}")
        return 0
    with contextlib.redirect_stdout(io.StringIO()) if options.json else contextlib.nullcontext():
        figures = load(options.name).run(options)
    line = json.dumps({"name": options.name, "figures": figures})
    RESULTS.mkdir(exist_ok=True)
    printed = ".as_printed" if options.as_printed else ""
    suffix = ".quick.json" if options.quick else ".json"
    (RESULTS / f"{options.name}{printed}{suffix}").write_text(line + "\n")
    print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
