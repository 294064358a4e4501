#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_style.py finds what it forbids, where it forbids it."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
CHECK = os.path.join(ROOT, "tools", "check_style.py")
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class CheckStyleTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="style.")
        self.addCleanup(shutil.rmtree, self.root)
        self.write("tools/check_allow", "")

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def run_on(self, path, text, *others):
        """What it says of a tree that has this file, and `others` that were written before."""
        self.write(path, text)
        done = subprocess.run([sys.executable, "-B", CHECK, path, *others], cwd=self.root,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1 if done.stdout else 0, done.stderr)
        return done.stdout

    def test_finds_each_rule(self):
        for rule, path, text in [
            ("spdx", "base/x.cc", "int x;\n"),
            ("length", "base/x.cc", SPDX + "\n" * 500),
            ("once", "base/x.h", SPDX),
            ("sleep", "tests/support/x.cc", SPDX + "std::this_thread::sleep_for(a);\n"),
            ("sleep", "tests/support/x.cc", SPDX + "  sleep(1);\n"),
            ("sleep", "tests/support/x.cc", SPDX + "absl::SleepFor(a);\n"),
            ("cout", "transfer/x.cc", SPDX + "std::cout << 1;\n"),
            ("shared_ptr", "daemon/x.cc", SPDX + "std::shared_ptr<int> p;\n"),
            ("throw", "device/x.cc", SPDX + "throw 1;\n"),
            ("todo", "client/x.cc", SPDX + "// TO" + "DO: more\n"),
            ("dead", "tests/new/x_test.cc", SPDX),
            ("dead", "base/x_test.cc", SPDX),
        ]:
            with self.subTest(rule=rule, text=text[-30:]):
                output = self.run_on(path, text)
                self.assertTrue(output.startswith(path + ":"), output)
                self.assertTrue(output.endswith(f"[{rule}]\n"), output)

    def test_lets_pass_what_is_fine(self):
        self.write("tests/new/CMakeLists.txt", "ferry_tests(new_tests LABEL unit)\n")
        for path, text in [
            ("tests/new/x_test.cc", SPDX),
            ("base/x.cc", SPDX + "// yaml-cpp may throw; no shared_ptr here, no std::cout\n"),
            ("base/x.h", SPDX + "#pragma once\n"),
            ("bench/x.cc", SPDX + "std::cout << 1; std::this_thread::sleep_for(a);\n"),
            ("base/full.cc", SPDX + "\n" * 499),
        ]:
            with self.subTest(path=path):
                self.assertEqual(self.run_on(path, text), "")

    def test_an_exception_needs_a_reason_and_a_use(self):
        text = SPDX + "std::shared_ptr<int> p;\n"
        self.write("tools/check_allow", "shared_ptr base/x.cc  # a library wants it\n")
        self.assertEqual(self.run_on("base/x.cc", text), "")
        self.assertIn("excuses nothing: shared_ptr base/x.cc", self.run_on("base/x.cc", SPDX))
        self.write("tools/check_allow", "shared_ptr base/x.cc\n")
        self.write("base/x.cc", text)
        done = subprocess.run([sys.executable, "-B", CHECK, "base/x.cc"], cwd=self.root,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("# reason", done.stderr)

    def test_pages_name_what_there_is(self):
        self.write("transfer/x.cc", SPDX + """
void Engine::Impl::Match(Half& half) {
  Compare(half);
}
namespace {
Route Pick() { return {}; }
}  // namespace
""")
        self.write("transfer/x.h", SPDX + "#pragma once\nclass Engine {\n  bool Compare();  // Gone() is no more\n};\n")
        self.write("docs/y.md", "# Y\n\n## When it is `taken`: a case\n")
        others = ("transfer/x.cc", "transfer/x.h", "docs/y.md")
        good = ["`transfer/x.cc: Match`", "`transfer/x.cc: Engine::Impl::Match`", "`transfer/x.cc: Pick`",
                "`transfer/x.h: Engine`", "`transfer/x.h: Engine::Compare`", "`transfer/x.cc`", "`transfer/`",
                "`transfer/x.{cc,h}`", "`docs/*.md`", "`transfer/NAME/`", "`transfer/a.sock`", "`other/x.cc`",
                "[y](y.md)", "[y](y.md#when-it-is-taken-a-case)", "[here](#top)", "[away](https://example.org/x)",
                "```\n`transfer/gone.cc`\n```", "    `transfer/gone.cc`", "`[no](gone.md)`"]
        self.assertEqual(self.run_on("docs/x.md", "# Top\n\n" + "\n\n".join(good) + "\n", *others), "")
        for text, rule in [("`transfer/x.cc: Compare`", "place"), ("`transfer/x.cc: Impl`", "place"),
                           ("`transfer/x.cc: Other::Match`", "place"), ("`transfer/x.h: Gone`", "place"),
                           ("`transfer/gone.cc: Match`", "place"), ("- an item\n\n    `transfer/x.cc:\n    Gone`", "place"),
                           ("`transfer/gone.cc`", "path"), ("`transfer/x.{cc,gone}`", "path"), ("`docs/*.txt`", "path"),
                           ("[y](gone.md)", "link"), ("[y](y.md#when)", "link"), ("[here](#gone)", "link")]:
            with self.subTest(text):
                output = self.run_on("docs/x.md", "# Top\n\n" + text + "\n", *others)
                self.assertRegex(output, rf"^docs/x\.md: .*\[{rule}\]\n$")

    def test_pages_are_wrapped(self):
        long_line = "word " * 24 + "w\n"
        for text in [long_line[:-2] + "\n", "| " + long_line, "# " + long_line, "    " + long_line,
                     "```\n" + long_line + "```\n", "[here](" + "x" * 130 + ".md)\n"]:
            with self.subTest(text):
                self.assertNotIn("[wrap]", self.run_on("docs/x.md", text))
        for text in [long_line, "- " + long_line, "- an item\n    " + long_line]:
            with self.subTest(text):
                output = self.run_on("docs/x.md", "# X\n\n" + text)
                self.assertRegex(output, r"^docs/x\.md:[34]: .*\[wrap\]\n$")
        self.assertIn(", and 1 more: ", self.run_on("docs/x.md", long_line * 2))

    def test_pages_of_the_past_may_name_what_is_gone(self):
        self.write("transfer/x.cc", SPDX)
        for page in ("docs/decisions/x.md", "CHANGELOG.md"):
            self.assertEqual(self.run_on(page, "`transfer/gone.cc: Match`, `transfer/gone.cc`\n", "transfer/x.cc"), "")
            self.assertIn("[link]", self.run_on(page, "[y](gone.md)\n"))


if __name__ == "__main__":
    unittest.main()
