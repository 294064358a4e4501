#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/gpu-test tells by its exit status whether anything ran, and whether it went well; it loses no test between its
parts, and leaves no MPS behind."""

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
  --gtest_list_tests)
    case "$2" in *=mps) exit 0 ;; esac
    printf 'Gpu.\\n  One\\n  Two\\n'; exit 0 ;;
esac
case "$*" in
  *Gpu.Two) outcome=${OUTCOMES#* } ;;
  *) outcome=${OUTCOMES% *} ;;
esac
[ "$outcome" != skip ] || echo '[  SKIPPED ] NO GPU'
[ "$outcome" != fail ]
"""


# In place of nvidia-cuda-mps-control: is up until it is told to quit, and says what SERVERS has. DEAF: it is not told.
MPS = """#!/bin/sh
up=$CUDA_MPS_PIPE_DIRECTORY/up
if [ "$1" = -f ]; then
  echo $$ > "$MPS_PID"
  mkfifo "$up"
  read -r _ < "$up"
  exit
fi
[ -p "$up" ] || exit 1
read -r line
case "$line" in
  get_server_list) printf '%s' "$SERVERS" ;;
  quit*) [ -z "$DEAF" ] && echo > "$up" ;;
esac
"""


# In place of python3, for the tests and the bench of CUDA tensors.
PYTHON = """#!/bin/sh
case "$*" in
  *' --list') echo one; echo expandable_segments ;;
  *'--one one') [ -z "$PYTORCH_CUDA_ALLOC_CONF" ] || exit 1; outcome=${OUTCOMES#* } ;;
  *'--one expandable_segments') [ "$PYTORCH_CUDA_ALLOC_CONF" = expandable_segments:True ] || exit 1 ;;
  *gpu_tensors.py*) echo a table; outcome=${OUTCOMES% *} ;;
esac
[ "$outcome" != skip ] || { echo 'SKIPPED: no PyTorch'; exit 77; }
[ "$outcome" != fail ]
"""


def runs(pid):
    """Whether a process is there and not dead: nobody may have reaped it yet."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class GpuTestTest(unittest.TestCase):
    def run_with(self, outcomes, part="correctness", filter="Gpu.*", mps=None):
        with tempfile.TemporaryDirectory() as bundle:
            for name in ("gpu-test", "find-nccl"):
                shutil.copy(os.path.join(ROOT, "tools", name), bundle)
            path = os.path.join(bundle, "tools") + ":" + os.environ["PATH"]
            programs = [("bin/ferry_gpu_tests", PROGRAM), ("bin/ferryd", "#!/bin/sh\necho ferryd 1\n"), ("bin/python", PYTHON),
                        ("tools/compute-sanitizer", "#!/bin/sh\n"), ("share/ferry/tests/torch_tensors.py", ""),
                        ("lib/libferry.so.0", "")]
            if mps is not None:
                programs.append(("tools/nvidia-cuda-mps-control", MPS))
            for name, text in programs:
                program = os.path.join(bundle, name)
                os.makedirs(os.path.dirname(program), exist_ok=True)
                with open(program, "w", encoding="utf-8") as file:
                    file.write(text)
                os.chmod(program, 0o755)
            output = os.path.join(bundle, "results")
            mps_pid = os.path.join(bundle, "mps.pid")
            done = subprocess.run(
                [os.path.join(bundle, "gpu-test"), "--output", output, "--part", part, "--filter", filter],
                env=dict(os.environ, OUTCOMES=outcomes, PATH=path, MPS_PID=mps_pid, FERRY_GPU_KERNELS="", **(mps or {}),
                         FERRY_PYTHON=os.path.join(bundle, "bin", "python")),
                capture_output=True, text=True, check=False)
            with open(os.path.join(output, f"results-{part}.json"), encoding="utf-8") as file:
                self.steps = json.load(file)["steps"]
            if mps is not None:
                with open(mps_pid, encoding="utf-8") as file:
                    self.assertFalse(runs(file.read().strip()), "it is stopped")
            return done.returncode, [step["state"] for step in self.steps]

    def names(self):
        return [step["name"] for step in self.steps]

    def test_exit_status(self):
        self.assertEqual(self.run_with("skip skip"), (77, ["skipped", "skipped"]))
        self.assertEqual(self.run_with("skip pass"), (0, ["skipped", "passed"]))
        self.assertEqual(self.run_with("pass pass"), (0, ["passed", "passed"]))
        self.assertEqual(self.run_with("skip fail"), (1, ["skipped", "failed"]))

    def test_every_test_is_in_one_of_the_shares(self):
        self.run_with("pass pass", "correctness-1")
        first = self.names()
        self.run_with("pass pass", "correctness-2")
        self.assertEqual((first, self.names()), (["Gpu.One"], ["Gpu.Two"]))

    def test_all_is_sanitized_in_one_of_the_shares(self):
        self.run_with("pass pass", "sanitize", "*")
        everything = self.names()
        shares = []
        for share in range(1, 4):
            self.run_with("pass pass", f"sanitize-{share}", "*")
            shares.append(self.names())
        self.assertEqual(sorted(sum(shares, [])), sorted(everything))
        random = "Random/GpuManyKernelsTest.RandomProgramsAreAsTheReferenceSays/"
        suite = "Suites/GpuAllKernelsTest.ProgramsAreAsTheReferenceSays/"
        for tool in ("memcheck", "initcheck", "racecheck"):
            for shard in range(10):
                self.assertIn(f"{tool} {random}{shard}", everything)
            part = "" if tool == "initcheck" else ", one program of 10"
            self.assertEqual([name for name in shares[2] if name.startswith(tool)],
                             [f"{tool} {suite}{i}" for i in (3, 4, 7, 8, 9)] + [f"{tool} {suite}{i}{part}" for i in (5, 6)])
        kernels = 5 + 10  # and shards of random programs
        self.assertEqual([len(share) for share in shares], [6 + 3 * (kernels // 2 + 1), 2 * 3 + 3 * (kernels // 2), 3 * 7])
        self.assertEqual(self.run_with("pass pass", "sanitize-2", "misspelt"), (1, ["failed"]))

    def test_a_filter_that_fits_nothing_fails(self):
        self.assertEqual(self.run_with("pass pass", "bench", "misspelt"), (1, ["failed"]))
        self.assertIn("nccl or local,mapped,tcp,ucx", self.steps[0]["note"])

    def test_tensors_of_pytorch(self):
        self.assertEqual(self.run_with("skip skip", "python", "*"), (0, ["skipped", "passed", "skipped"]))
        self.assertEqual((self.names()[0], self.names()[2]), ("one", "gpu_tensors_bench"))
        self.assertEqual(self.steps[0]["note"], "SKIPPED: no PyTorch")
        self.assertEqual(self.run_with("fail pass", "python", "*"), (1, ["passed", "passed", "failed"]))
        self.assertEqual(self.run_with("pass pass", "python", "on*"), (0, ["passed"]))
        self.assertEqual(self.run_with("pass pass", "python", "misspelt"), (1, ["failed"]))

    def test_an_option_without_its_value_is_said(self):
        done = subprocess.run([os.path.join(ROOT, "tools", "gpu-test"), "--part"], capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (2, "gpu-test: --part needs a value\n"))

    def test_mps(self):
        self.assertEqual(self.run_with("pass pass", filter="mps", mps={"SERVERS": "4711"}), (0, ["passed", "passed"]))
        self.assertTrue(self.names()[0].startswith("mps Gpu/"))
        self.assertEqual(self.run_with("fail fail", filter="mps", mps={"SERVERS": "4711"}), (1, ["failed", "failed"]))
        self.assertEqual(self.run_with("pass pass", filter="mps", mps={"SERVERS": "4711", "DEAF": "1"}),
                         (0, ["passed", "passed"]))
        self.assertEqual(self.run_with("pass pass", filter="mps", mps={"SERVERS": ""}),
                         (1, ["passed", "passed", "failed"]))
        if shutil.which("nvidia-cuda-mps-control") is None:
            self.assertEqual(self.run_with("pass pass", filter="mps"), (77, ["skipped"]))


if __name__ == "__main__":
    unittest.main()
