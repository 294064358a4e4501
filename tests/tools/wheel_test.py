#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/wheel says on which hosts a wheel loads, or that nobody has said so."""

import os
import subprocess
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
# An environment with setuptools and without auditwheel.
PYTHON = """#!/bin/sh
case "$*" in
  *auditwheel*) exit 1 ;;
esac
"""


class WheelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.venv, self.build = os.path.join(folder.name, "venv"), os.path.join(folder.name, "build")
        os.makedirs(os.path.join(self.venv, "bin"))
        os.mkdir(self.build)
        with open(os.path.join(self.venv, "bin", "python"), "w", encoding="utf-8") as file:
            file.write(PYTHON)
        os.chmod(file.name, 0o755)

    def wheel(self, *arguments):
        command = [os.path.join(ROOT, "tools", "wheel"), *arguments, "--pack", self.build, os.path.join(self.build, "wheels")]
        environment = {**os.environ, "FERRY_VENV": self.venv}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def test_without_auditwheel_nothing_is_packed(self):
        done = self.wheel()
        self.assertEqual(done.returncode, 1)
        self.assertIn("has no auditwheel", done.stderr)
        self.assertIn("--unaudited", done.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.build, "wheels")))

    def test_unless_it_is_told_so(self):
        done = self.wheel("--unaudited")  # which goes on, and finds no build
        self.assertNotIn("auditwheel", done.stderr)
        self.assertTrue(os.path.exists(os.path.join(self.build, "wheels")))


if __name__ == "__main__":
    unittest.main()
