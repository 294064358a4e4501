#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What pytest has skipped: tests/python/skips.py SKIPS JUNIT-FILE prints a line with the counts and the reasons.

A skip that SKIPS does not list, in the form of tests/SKIPS, is told by name on stderr, and fails. A name is FILE.TEST. So is
one whose reason is "only where NAME is", of a NAME that $FERRY_REQUIRED has.
"""

import collections
import os
import sys
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
from test_report import load_skips


def main():
    required = tuple(f"only where {name} is" for name in os.environ.get("FERRY_REQUIRED", "").split())
    skips = [(pattern, reason) for pattern, reason in load_skips(sys.argv[1]) if not reason.startswith(required)]
    passed, unlisted, reasons = 0, [], collections.Counter()
    for case in xml.etree.ElementTree.parse(sys.argv[2]).getroot().iter("testcase"):
        skipped = case.find("skipped")
        if skipped is None:
            passed += case.find("failure") is None and case.find("error") is None
            continue
        name = f"{case.get('classname').rpartition('.')[2]}.{case.get('name')}"
        reasons[next((reason for pattern, reason in skips if pattern.fullmatch(name)), "NOT LISTED")] += 1
        if not any(pattern.fullmatch(name) for pattern, _ in skips):
            unlisted.append(f"{name}: {skipped.get('message')}")
    for one in unlisted:
        print(f"skipped, and not on {sys.argv[1]}: {one}", file=sys.stderr)
    why = "".join(f"; {count}: {reason}" for reason, count in sorted(reasons.items()))
    print(f"tests/python: {passed} passed, {sum(reasons.values())} skipped{why}")
    return bool(unlisted)


if __name__ == "__main__":
    sys.exit(main())
