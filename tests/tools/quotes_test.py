#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What pages show of programs is in a file under examples/, which tests build and run.

A page that shows C or C++ (a block that begins with ```c or ```cpp) names a file of examples/ in the lines before it,
and the block's lines stand in that file, one after the other; the file may have them deeper indented.
"""

import glob
import os
import re
import textwrap
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BLOCK = re.compile(r"^```(?:c|cpp|c\+\+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"examples/\w+\.(?:cc|c)\b")


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def pages():
    return ["README.md", *(os.path.relpath(path, ROOT) for path in sorted(glob.glob(os.path.join(ROOT, "docs", "*.md"))))]


def stands_in(block, text):
    """Whether the lines of `block` follow each other in `text`, all of them indented by the same more."""
    wanted, lines = block.rstrip("\n").split("\n"), text.split("\n")
    return any(textwrap.dedent("\n".join(lines[i:i + len(wanted)])) == "\n".join(wanted)
               for i in range(len(lines) - len(wanted) + 1))


class QuotesTest(unittest.TestCase):
    def test_what_pages_quote_stands_in_the_file(self):
        quotes = 0
        for page in pages():
            text = read(page)
            for block in BLOCK.finditer(text):
                quotes += 1
                with self.subTest(f"{page}: {block[1][:60]!r}"):
                    named = FILE.findall(text[:block.start()])
                    self.assertTrue(named, "no file of examples/ is named before it")
                    self.assertTrue(stands_in(textwrap.dedent(block[1]), read(named[-1])),
                                    f"its lines are not in {named[-1]}")
        self.assertGreater(quotes, 2)

    def test_what_pages_show_of_programs_is_quoted(self):
        """No indented block is C or C++: nothing would hold it against a file."""
        for page in pages():
            for line in FENCED.sub("", read(page)).split("\n"):
                with self.subTest(f"{page}: {line}"):
                    self.assertNotRegex(line, r"^    (?!\$ ).*[);}];(\s*//.*)?$")

    def test_each_program_is_built_with_the_examples(self):
        listed = read("examples", "CMakeLists.txt")
        for path in glob.glob(os.path.join(ROOT, "examples", "*.c*")):
            self.assertIn(os.path.basename(path), listed)

    def test_a_difference_is_seen(self):
        self.assertTrue(stands_in("a;\nb;\n", "{\n  a;\n  b;\n}\n"))
        for block in ("a;\nc;\n", "a;\n\nb;\n", "a;\n b;\n"):
            self.assertFalse(stands_in(block, "{\n  a;\n  b;\n}\n"), block)


if __name__ == "__main__":
    unittest.main()
