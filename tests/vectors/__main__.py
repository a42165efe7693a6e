"""Write openapi/vectors.json anew, unless what is deterministic in it is up to date."""

import json

from tests.vectors.generate import PATH, deterministic, generate

made = generate()
known = json.loads(PATH.read_text()) if PATH.exists() else None
if known is None or deterministic(known) != deterministic(made):
    PATH.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
