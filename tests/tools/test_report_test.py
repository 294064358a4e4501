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


class ReportTest(unittest.TestCase):
    def report(self, skips):
        with tempfile.TemporaryDirectory(prefix="report.") as folder:
            for name, text in [("SKIPS", skips), ("a.xml", RESULTS)]:
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

    def test_a_pattern_must_fit_the_whole_name(self):
        self.assertEqual(self.report("Skip # part of a name\n").stdout, "2 4 0\n")

    def test_a_skip_needs_a_reason(self):
        done = self.report("Skip.Listed\n")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("without reason", done.stderr)


if __name__ == "__main__":
    unittest.main()
