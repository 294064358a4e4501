# SPDX-License-Identifier: Apache-2.0
"""The story that docs/developing.md shows is the one that the simulator tells: story_page_test.py FERRY_SIM PAGE."""

import re
import subprocess
import sys

sim, page = sys.argv[1:]
with open(page, encoding="utf-8") as file:
    text = file.read()
section = text.split("## A story of the simulator\n")[1].split("\n## ")[0]
seed, daemons = re.search(r"tools/sim --seed (\d+) --daemons (\d+) --verbose", section).groups()
shown = re.findall(r"^ {4}(\d+\.\d+ ms .*)$", section, re.MULTILINE)
command = [sim, f"--seed={seed}", "--seeds=1", f"--daemons={daemons}", "--verbose"]
told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
told = [line.strip() for line in told]
if not shown:
    sys.exit(f"{page} shows no line of a story")
at = -1
for line in shown:
    try:
        at = told.index(line, at + 1)
    except ValueError:
        sys.exit(f"{' '.join(command)} does not tell, behind the lines before: {line}")
print(f"{len(shown)} lines of {page} are told")
