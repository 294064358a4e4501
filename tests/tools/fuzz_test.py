#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/fuzz --replay finds the target of an input, or says what it needs."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class FuzzReplayTest(unittest.TestCase):
    def setUp(self):
        # A tree in which nothing is built: cmake does nothing, and a target says that it was run.
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        (self.tree / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "fuzz", self.tree / "tools" / "fuzz")
        self.program("path/cmake", "exit 0")
        for target in ("attach", "peer"):
            (self.tree / "tests/fuzz/corpus" / target).mkdir(parents=True)
            self.program(f"build/fuzz/bin/fuzz_{target}", f'echo "{target} reads $1"')

    def test_every_target_has_a_corpus_by_which_it_is_known(self):
        text = (ROOT / "tests/fuzz/CMakeLists.txt").read_text()
        targets = re.findall(r"^ferry_fuzz\((\w+)", text, re.MULTILINE)
        self.assertGreater(len(targets), 5)
        self.assertEqual(sorted(targets), sorted(folder.name for folder in (ROOT / "tests/fuzz/corpus").iterdir()))

    def program(self, name, text):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def replay(self, file, *target, made=True):
        path = self.tree / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if made:
            path.touch()
        return subprocess.run(
            [self.tree / "tools" / "fuzz", "--replay", file, *target],
            env={**os.environ, "PATH": f"{self.tree / 'path'}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )

    def test_the_folder_of_a_seed_tells_its_target(self):
        done = self.replay("tests/fuzz/corpus/peer/offer")
        self.assertEqual(done.stdout, "peer reads tests/fuzz/corpus/peer/offer\n", done.stderr)

    def test_the_name_of_a_finding_tells_its_target(self):
        done = self.replay("build/fuzz/findings/attach.crash-01")
        self.assertEqual(done.stdout, "attach reads build/fuzz/findings/attach.crash-01\n", done.stderr)

    def test_a_target_that_is_named_is_taken(self):
        done = self.replay("tests/fuzz/corpus/peer/offer", "attach")
        self.assertEqual(done.stdout, "attach reads tests/fuzz/corpus/peer/offer\n", done.stderr)

    def test_else_it_says_what_it_needs(self):
        for done, text in (
            (self.replay("elsewhere"), "which target reads elsewhere?"),
            (self.replay("elsewhere", "attach", "peer"), "which target reads elsewhere?"),
            (self.replay("none", made=False), "no file none"),
            (self.replay("", made=False), "--replay takes a file"),
        ):
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()
