"""Run the fuzzer for some minutes of this process's own time, with progress and a final line."""

import argparse
import secrets
import sys
import time
from collections.abc import Sequence

import torch

from tests.adversary.fuzz.campaign import Campaign
from tests.adversary.fuzz.observing import entrances


def main(arguments: Sequence[str] | None = None) -> int:
    """Print progress every ten seconds, every finding, and what was reached."""
    reader = argparse.ArgumentParser(prog="python -m tests.adversary.fuzz")
    reader.add_argument("--minutes", type=float, default=10.0)
    reader.add_argument("--seed", type=int, help="repeat a campaign; by default a fresh seed")
    reader.add_argument("--case", type=int, help="repeat one case of the seed")
    asked = reader.parse_args(arguments)
    torch.set_num_threads(1)
    seed = secrets.randbelow(2**32) if asked.seed is None else asked.seed
    _say(f"seed {seed}")
    last, shown = time.monotonic(), 0

    def told(campaign: Campaign) -> None:
        nonlocal last, shown
        for finding in campaign.findings[shown:]:
            _say(f"FOUND {finding}")
        shown = len(campaign.findings)
        if time.monotonic() - last > 10:
            last = time.monotonic()
            _say(_line(campaign))

    with entrances() as doors:
        campaign = Campaign(seed, doors)
        if asked.case is not None:
            campaign.case(asked.case)
            told(campaign)
        else:
            campaign.run(60 * asked.minutes, told=told, clock=time.process_time)
    for counts in (campaign.counts, campaign.reached, campaign.notes):
        for name, count in counts.most_common():
            _say(f"{count:8} {name}")
    _say(f"seed {seed}: {_line(campaign)}")
    return 1 if campaign.findings else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _line(campaign: Campaign) -> str:
    return (
        f"{campaign.counts['cases']} cases, {campaign.counts['vectors']} vectors, "
        f"{campaign.counts['vectors of sites that failed']} failed alike, "
        f"{campaign.counts['vectors in conversation']} in conversations, "
        f"{len(campaign.reached)} of algorithm, kind of run and noise, "
        f"{len(campaign.findings)} findings"
    )


if __name__ == "__main__":
    sys.exit(main())
