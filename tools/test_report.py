#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums up ctest's JUnit files: tools/test_report.py SKIPS FILE... prints "passed failed skipped".

Failures and skips are told by name on stderr, a failure with what the test printed: where that is long, how it began and
ended. A skip that SKIPS does not list counts as failed.
"""

import re
import sys
import xml.etree.ElementTree

BEGIN, END = 15, 45  # lines of a failed test's output
OUTPUTS = 10  # failed tests of which the output is shown: the names of more say enough


def load_skips(path):
    skips = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            pattern, separator, reason = line.partition(" # ")
            if not separator or not reason.strip():
                sys.exit(f"{path}: a skip without reason: {line}")
            skips.append((re.compile(pattern.strip()), reason.strip()))
    return skips


def outcome(case):
    """"passed", "failed" or "skipped" (what the test itself said)."""
    if case.get("status") == "run":
        return "passed"
    skipped = case.find("skipped")
    # A test whose program was not built is "notrun" as well, but did not skip itself.
    if skipped is not None and "SKIP_" in skipped.get("message", ""):
        return "skipped"
    return "failed"


def shown(output):
    """The lines of a failed test's output, without those in the middle of a long one."""
    lines = (output or "").strip("\n").splitlines()
    if len(lines) > BEGIN + END:
        lines[BEGIN:-END] = [f"[{len(lines) - BEGIN - END} lines left out]"]
    return "".join(f"    {line}\n" for line in lines)


def main():
    skips = load_skips(sys.argv[1])
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for path in sys.argv[2:]:
        for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
            name = case.get("name")
            result = outcome(case)
            if result == "skipped":
                reason = next((reason for pattern, reason in skips if pattern.fullmatch(name)), None)
                if reason is None:
                    print(f"  skipped, and not on {sys.argv[1]}: {name}", file=sys.stderr)
                    result = "failed"
                else:
                    print(f"  skipped: {name}: {reason}", file=sys.stderr)
            elif result == "failed":
                output = shown(case.findtext("system-out")) if counts["failed"] < OUTPUTS else ""
                print(f"  failed: {name}\n{output}", end="", file=sys.stderr)
            counts[result] += 1
    print(counts["passed"], counts["failed"], counts["skipped"])


if __name__ == "__main__":
    main()
