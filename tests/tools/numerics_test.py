#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python of docs/numerics.md gives the checksums that the page and ChecksumTest have."""

import os
import re
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


class NumericsTest(unittest.TestCase):
    def test_the_checksum_of_the_page_is_that_of_the_test(self):
        page = read("docs", "numerics.md")
        names = {}
        exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], names)
        golden = read("tests", "compute", "numerics", "checksum_test.cc")
        for data in (b"", b"ferry", bytes(i * i % 251 for i in range(1000)), bytes(64)):
            low, high = names["checksum"](data)
            self.assertIn(f"0x{low:016X}, 0x{high:016X}" if data else "expect({}, 0, 0)", golden)
            if data == b"ferry":
                self.assertIn(f"`0x{low:016X}`, `0x{high:016X}`", page)


if __name__ == "__main__":
    unittest.main()
