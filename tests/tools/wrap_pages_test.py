#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/wrap_pages.py wraps what tools/check_style.py calls too long, and nothing else."""

import glob
import os
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tools"))

from check_names import WIDTH, prose_of, too_long  # noqa: E402
from wrap_pages import wrapped  # noqa: E402

LONG = "word " * 30


class WrapPagesTest(unittest.TestCase):
    def test_paragraphs_and_items_are_filled(self):
        for begin, others in [("", ""), ("- ", "  "), ("1. ", "   "), ("  - ", "    "), ("10. ", "    ")]:
            with self.subTest(begin):
                lines = wrapped(f"# A page\n\n{begin}{LONG}\n{others}more\n").split("\n")
                self.assertEqual(lines[:2] + lines[-1:], ["# A page", "", ""])
                self.assertEqual(" ".join(lines).split()[-31:], ["word"] * 30 + ["more"])
                self.assertTrue(lines[2].startswith(begin + "word"))
                self.assertTrue(all(line.startswith(others + "word") for line in lines[3:-1]), lines)
                self.assertGreater(len(lines[2]), WIDTH - len("word "))
                self.assertTrue(all(len(line) <= WIDTH for line in lines))

    def test_what_follows_an_item_stays_in_it(self):
        text = wrapped(f"- an item\n\n  {LONG}\n\nno item\n\n    code {LONG}\n")
        self.assertIn("\n\n  word", text)
        self.assertIn("\n  word", text.partition("\n\n  word")[2])
        self.assertIn(f"\n\n    code {LONG}\n", text)

    def test_all_else_stays(self):
        for text in ["short\nlines\nstay\n", f"| {LONG} |\n", f"## {LONG}\n", f"    {LONG}\n", f"```\n{LONG}\n```\n",
                     f"broken on purpose  \n{LONG}\n", "x" * 200 + "\n", ""]:
            with self.subTest(text[:20]):
                self.assertEqual(wrapped(text), text)

    def test_code_spans_are_not_broken_and_markers_begin_no_line(self):
        for tail in ["`ferryctl a b c d e f`", "- is no item", "# is no heading", "12. is no item"]:
            for size in range(100, 121):
                text = wrapped("x" * (size - 2) + " y " + tail + " " + "z" * 20 + "\n")
                for line in text.split("\n"):
                    self.assertEqual(line.count("`") % 2, 0, text)
                    self.assertNotRegex(line, r"^([-#]|12\.)( |$)")

    def test_pages_of_the_tree_are_wrapped_as_it_would(self):
        pages = [os.path.join(ROOT, "README.md"), *glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)]
        self.assertGreater(len(pages), 80)
        for page in pages:
            with open(page, encoding="utf-8") as file:
                text = file.read()
            self.assertEqual(wrapped(text), text, page)

    def test_both_agree_on_what_is_too_long(self):
        text = f"{LONG}\n\n- {LONG}\n  - {LONG}\n    {LONG}\n\n| {LONG} |\n\n    {LONG}\n"
        self.assertEqual([line for _, line in prose_of(wrapped(text).split("\n")) if too_long(line)], [])


if __name__ == "__main__":
    unittest.main()
