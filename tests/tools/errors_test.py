#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/errors.md explains each reason of base/reason.h, and no other."""

import os
import re
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


class ErrorsTest(unittest.TestCase):
    def test_every_reason_is_explained_once(self):
        reasons = re.findall(r'X\(k\w+, "([A-Z_]+)"\)', read("base", "reason.h"))
        rows = re.findall(r"^\| `([A-Z_]+)` \| (.*) \|$", read("docs", "errors.md"), re.MULTILINE)
        self.assertGreater(len(reasons), 30)
        self.assertEqual(sorted(reasons), sorted(name for name, _ in rows))
        for name, rest in rows:
            cells = [cell.strip() for cell in rest.split(" | ")]
            self.assertEqual(len(cells), 3, f"{name}: code, when, what to do")
            self.assertTrue(all(cells), name)


if __name__ == "__main__":
    unittest.main()
