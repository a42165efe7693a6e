"""`python -m service.export_contract > openapi/openapi.json`: write the published contract."""

import json
import sys

from service.app import create_app
from service.settings import Settings


def exported() -> str:
    """Return the contract as text; the same application always yields the same text."""
    return json.dumps(create_app(Settings()).openapi(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(exported())
