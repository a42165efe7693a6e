"""Write the golden files anew, after a format was changed on purpose."""

import sys

from tests.golden import contents

if __name__ == "__main__":
    for name, data in contents.files().items():
        path = contents.HERE / name
        same = path.exists() and path.read_bytes() == data
        path.write_bytes(data)
        sys.stdout.write(f"{name}: {len(data)} bytes, {'as before' if same else 'changed'}\n")
