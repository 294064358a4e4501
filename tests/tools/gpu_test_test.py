#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/gpu-test tells by its exit status whether anything ran, and whether it went well."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))

# In place of ferry_gpu_tests: says of each test what OUTCOMES has.
PROGRAM = """#!/bin/sh
case "$1" in
  --gtest_list_tests) printf 'Gpu.\\n  One\\n  Two\\n'; exit 0 ;;
esac
case "$*" in
  *Gpu.One) outcome=${OUTCOMES% *} ;;
  *) outcome=${OUTCOMES#* } ;;
esac
[ "$outcome" != skip ] || echo '[  SKIPPED ] NO GPU'
[ "$outcome" != fail ]
"""


class GpuTestTest(unittest.TestCase):
    def run_with(self, outcomes):
        with tempfile.TemporaryDirectory() as bundle:
            for name in ("gpu-test", "find-nccl"):
                shutil.copy(os.path.join(ROOT, "tools", name), bundle)
            os.mkdir(os.path.join(bundle, "bin"))
            for name, text in (("ferry_gpu_tests", PROGRAM), ("ferryd", "#!/bin/sh\necho ferryd 1\n")):
                path = os.path.join(bundle, "bin", name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                os.chmod(path, 0o755)
            output = os.path.join(bundle, "results")
            done = subprocess.run(
                [os.path.join(bundle, "gpu-test"), "--output", output, "--filter", "Gpu.*"],
                env=dict(os.environ, OUTCOMES=outcomes), capture_output=True, text=True, check=False)
            with open(os.path.join(output, "results.json"), encoding="utf-8") as file:
                states = [step["state"] for step in json.load(file)["steps"]]
            return done.returncode, states

    def test_exit_status(self):
        self.assertEqual(self.run_with("skip skip"), (77, ["skipped", "skipped"]))
        self.assertEqual(self.run_with("skip pass"), (0, ["skipped", "passed"]))
        self.assertEqual(self.run_with("pass pass"), (0, ["passed", "passed"]))
        self.assertEqual(self.run_with("skip fail"), (1, ["skipped", "failed"]))


if __name__ == "__main__":
    unittest.main()
