"""`python -m service.export_contract > openapi/openapi.json`: the contract, as it is published."""

import json
import sys

from service.app import create_app
from service.settings import Settings


def exported() -> str:
    """Give the contract as text; the same application gives the same text."""
    return json.dumps(create_app(Settings()).openapi(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(exported())
