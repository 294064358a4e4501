#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The lines of README.md by which a user installs the packages, as they stand there: tools/packages-test runs them.

readme_lines.py clone   those of "As a service", for who has a clone
readme_lines.py folder  what its text says of who has the packages already: its commands and the last line of the others
"""

import itertools
import os
import re
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
HEADING = "## As a service"
INSTALL = re.compile(r"\b(?:apt|apt-get|dpkg|aptitude)\s+(?:-\S+\s+)*(?:install|-i|--install)\b")


def section(page):
    lines = list(itertools.dropwhile(lambda line: line != HEADING, page.split("\n")))[1:]
    return list(itertools.takewhile(lambda line: not line.startswith("## "), lines))


def clone(page):
    return [line[4:] for line in section(page) if line.startswith("    ")]


def folder(page):
    text = " ".join(line for line in section(page) if not line.startswith("    "))
    return [code for code in re.findall(r"`([^`]*)`", text) if INSTALL.search(code)] + clone(page)[-1:]


def installing(lines):
    return [line for line in lines if INSTALL.search(line)]


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


if __name__ == "__main__":
    found = {"clone": clone, "folder": folder}[sys.argv[1]](read("README.md"))
    if not installing(found):
        sys.exit(f"readme_lines.py: README.md has no line under {HEADING!r} that installs packages, for who has a {sys.argv[1]}")
    print("\n".join(found))
