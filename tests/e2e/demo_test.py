#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/demo as a bundle has it, on machines with two GPUs, one, and no NCCL, which the fakes are.

demo_test.py BIN FAKE_CUDA FAKE_NCCL FAKE_NVRTC: BIN is the folder of ferryd and ferryctl.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BIN, FAKE_CUDA, FAKE_NCCL, FAKE_NVRTC = sys.argv[1:5]

NVIDIA_SMI = """#!/bin/sh
for i in $(seq "$GPUS"); do echo "GPU $((i - 1)): fake (UUID: GPU-$i-fake)"; done
"""

FAILING_FERRYCTL = """#!/bin/sh
case "$*" in *"program run"*"--device 1"*) echo "the GPU says no" >&2; exit 7 ;; esac
exec {} "$@"
"""


class DemoTest(unittest.TestCase):
    def run_demo(self, gpus, *arguments, nccl=FAKE_NCCL, nvrtc=FAKE_NVRTC, visible=None, ferryctl=None):
        with tempfile.TemporaryDirectory() as bundle:
            for name in ("demo", "find-nccl"):
                shutil.copy(os.path.join(ROOT, "tools", name), bundle)
            shutil.copytree(os.path.join(ROOT, "docs", "programs"), os.path.join(bundle, "docs", "programs"))
            programs = os.path.join(bundle, "bin")
            os.mkdir(programs)
            for name in ("ferryd", "ferryctl"):
                os.symlink(os.path.join(BIN, name), os.path.join(programs, name))
            if ferryctl is not None:
                os.remove(os.path.join(programs, "ferryctl"))
                with open(os.path.join(programs, "ferryctl"), "w", encoding="utf-8") as file:
                    file.write(ferryctl)
                os.chmod(file.name, 0o755)
            tools = os.path.join(bundle, "tools")
            os.mkdir(tools)
            with open(os.path.join(tools, "nvidia-smi"), "w", encoding="utf-8") as file:
                file.write(NVIDIA_SMI)
            os.chmod(file.name, 0o755)
            # GPUs of this test's own: daemons lock them by UUID, and tests run side by side.
            environment = dict(
                os.environ, PATH=tools + ":" + os.environ["PATH"], TMPDIR=bundle, GPUS=str(gpus),
                FERRY_CUDA_LIBRARY=FAKE_CUDA, FERRY_NVML_LIBRARY=FAKE_CUDA, FERRY_NCCL_LIBRARY=nccl,
                FERRY_NVRTC_LIBRARY=nvrtc,
                FERRY_FAKE_CUDA=f"devices={gpus};seed={os.getpid()}")
            if visible is not None:
                environment["CUDA_VISIBLE_DEVICES"] = visible
            done = subprocess.run(
                [os.path.join(bundle, "demo"), "--size", "8MB", *arguments], env=environment,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200, check=False)
            return done.returncode, done.stdout

    def test_two_gpus_show_the_chosen_route_and_nccl(self):
        status, output = self.run_demo(2)
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("demo: the files agree"), 2, output)
        for what in ("file to file, cold", "ferryctl bench, one buffer, warm"):
            self.assertRegex(output, re.escape(what) + r" .* mapped\n .* nccl\n")
        self.assertRegex(output, r"\n1-3 +1 +1 +open ")  # the communicator
        self.assertIn("demo: devices 1 and 3: 1,056 bytes travelled for 4,096, each way; the sums are right", output)

    def test_one_route_is_shown_alone_if_it_is_nccl(self):
        status, output = self.run_demo(2, "--route", "nccl")
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("demo: the files agree"), 1, output)
        self.assertNotIn("mapped", output)

    def test_one_gpu_is_said_and_host_devices_are_shown(self):
        status, output = self.run_demo(1)
        self.assertEqual(status, 0, output)
        self.assertIn("demo: one GPU: nothing goes over nccl, which takes no two ranks on one GPU", output)
        self.assertEqual(output.count("demo: the files agree"), 1, output)
        self.assertIn("demo: devices 1 and 2: 1,056 bytes", output)  # a GPU's program and a host's
        status, output = self.run_demo(1, "--route", "nccl")
        self.assertEqual(status, 2, output)
        self.assertIn("--route nccl takes two GPUs, and 1 can be seen here", output)

    def test_without_a_compiler_of_kernels_the_job_is_shown_on_host_devices(self):
        status, output = self.run_demo(1, nvrtc="/nowhere/libnvrtc.so")
        self.assertEqual(status, 0, output)
        self.assertIn("/nowhere/libnvrtc.so", output)
        self.assertIn("demo: not shown on GPUs, for the reason above; on host devices", output)
        self.assertIn("demo: devices 0 and 2: 1,056 bytes", output)

    def test_a_job_that_fails_on_gpus_fails_the_demo(self):
        status, output = self.run_demo(1, ferryctl=FAILING_FERRYCTL.format(os.path.join(BIN, "ferryctl")))
        self.assertEqual(status, 1, output)
        self.assertIn("the GPU says no\ndemo: the job on GPUs failed\n", output)

    def test_gpus_that_are_hidden_do_not_count(self):
        for visible, seen in (("1", 1), ("", 0), ("0,7,1", 1), ("GPU-1,GPU-9", 1), ("-1", 0)):
            status, output = self.run_demo(2, "--route", "nccl", visible=visible)
            self.assertEqual(status, 2, output)
            self.assertIn(f"and {seen} can be seen here", output)

    def test_an_option_without_its_value_is_said(self):
        status, output = self.run_demo(0, "--route")
        self.assertEqual((status, output), (2, "demo: --route needs a value\n"))

    def test_a_missing_nccl_is_said(self):
        status, output = self.run_demo(2, nccl="/nowhere/libnccl.so.2")
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"demo: not shown over nccl: .*/nowhere/libnccl\.so\.2")
        self.assertEqual(output.count("demo: the files agree"), 1, output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
