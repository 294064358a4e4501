#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/test_report.py counts each ending once, and only listed skips are skips."""

import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
REPORT = os.path.join(ROOT, "tools", "test_report.py")
# As ctest 3.25 writes them.
RESULTS = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="x">
<testcase name="Good.A" status="run"/>
<testcase name="Good.B" status="run"/>
<testcase name="Bad.A" status="fail"><failure message=""/></testcase>
<testcase name="Skip.Listed" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>
<testcase name="Skip.New" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>
<testcase name="lost_NOT_BUILT" status="notrun"><skipped message="Unable to find executable"/></testcase>
</testsuite>
"""
# A test of 100 lines, and more failed tests than are shown.
MANY = "".join(
    ["<testsuite>"]
    + [f'<testcase name="Bad.{i}" status="fail"><failure message=""/><system-out>' + "".join(f"{i}: line {line} &lt;\n" for line in range(100))
       + "</system-out></testcase>" for i in range(30)]
    + ["</testsuite>"]
)


class ReportTest(unittest.TestCase):
    def report(self, skips, results=RESULTS):
        with tempfile.TemporaryDirectory(prefix="report.") as folder:
            for name, text in [("SKIPS", skips), ("a.xml", results)]:
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            return subprocess.run([sys.executable, "-B", REPORT, "SKIPS", "a.xml"], cwd=folder,
                                  capture_output=True, text=True, check=False)

    def test_counts(self):
        done = self.report("# a comment\n\nSkip\\.Listed # needs a NIC\n")
        self.assertEqual(done.stdout, "2 3 1\n")
        self.assertIn("skipped: Skip.Listed: needs a NIC", done.stderr)
        self.assertIn("skipped, and not on SKIPS: Skip.New", done.stderr)
        self.assertIn("failed: lost_NOT_BUILT", done.stderr)
        self.assertIn("failed: Bad.A", done.stderr)

    def test_what_a_failed_test_printed_is_shown_with_its_end(self):
        done = self.report("", MANY)
        self.assertEqual(done.stdout, "0 30 0\n")
        told = done.stderr.splitlines()
        self.assertEqual(told[:2], ["  failed: Bad.0", "    0: line 0 <"])
        self.assertIn("    0: line 14 <", told)
        self.assertNotIn("    0: line 15 <", told)
        self.assertIn("    [40 lines left out]", told)
        self.assertIn("    0: line 99 <", told)
        self.assertIn("    9: line 99 <", told)
        self.assertEqual(told[-20:], [f"  failed: Bad.{i}" for i in range(10, 30)])

    def test_a_pattern_must_fit_the_whole_name(self):
        self.assertEqual(self.report("Skip # part of a name\n").stdout, "2 4 0\n")

    def test_a_skip_needs_a_reason(self):
        done = self.report("Skip.Listed\n")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("without reason", done.stderr)


if __name__ == "__main__":
    unittest.main()
