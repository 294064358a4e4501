#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""interpreters.py PYTHON prints the oldest and the newest CPython at hand, of those that the package is for, but not PYTHON's
own version: python3.N in the path, and pyenv's."""

import glob
import os
import re
import subprocess
import sys

OLDEST = (3, 10)
LOOK = "import sys, venv; print(*sys.version_info[:2], sys.implementation.name, sys.prefix)"


def at_hand():
    """(version, path) of each, as it says itself."""
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin"))]
    seen = set()
    for path in sorted(found for folder in folders for found in glob.glob(os.path.join(folder, "python3.*"))):
        if not re.fullmatch(r"python3\.\d+", os.path.basename(path)) or os.path.realpath(path) in seen:
            continue
        seen.add(os.path.realpath(path))
        said = subprocess.run([path, "-c", LOOK], capture_output=True, text=True, check=False)
        major, minor, kind, *_ = [*said.stdout.split(), "", "", ""]
        if said.returncode == 0 and kind == "cpython":
            yield (int(major), int(minor)), path


def main():
    own = subprocess.run([sys.argv[1], "-c", LOOK], capture_output=True, text=True, check=True).stdout.split()
    found = {version: path for version, path in at_hand() if version >= OLDEST and version != (int(own[0]), int(own[1]))}
    for version in sorted({min(found), max(found)} if found else ()):
        print(found[version])


if __name__ == "__main__":
    main()
