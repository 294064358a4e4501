#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rows of ferry_gpu_bench that kill, abort and evict are measured on the fakes, so that they are known to end.

gpu_bench_test.py BENCH FAKE_CUDA FAKE_NCCL: what they come to there says nothing.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

BENCH, FAKE_CUDA, FAKE_NCCL = sys.argv[1:4]


class GpuBenchTest(unittest.TestCase):
    def run_bench(self, gpus, cases):
        # GPUs of this test's own: daemons lock them by UUID, and tests run side by side.
        environment = dict(os.environ, FERRY_CUDA_LIBRARY=FAKE_CUDA, FERRY_NVML_LIBRARY=FAKE_CUDA,
                           FERRY_NCCL_LIBRARY=FAKE_NCCL, FERRY_FAKE_CUDA=f"devices={gpus};seed={os.getpid()}")
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "bench.json")
            done = subprocess.run(
                [BENCH, "--routes", "nccl", "--cases", cases, "--rounds", "1", "--large", "1048576",
                 "--json", path],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400,
                check=False)
            self.assertIn(done.returncode, (0, 8), done.stdout)  # targets are a GPU's
            with open(path, encoding="utf-8") as file:
                return done.stdout, [row["case"] for row in json.load(file)["rows"]]

    def test_two_gpus(self):
        output, rows = self.run_bench(2, "comms,loss,cliques")
        for what in ("device memory of a daemon's first communicator", "device memory of a later communicator",
                     "a later one opened", "one with groups under way aborted",
                     "restarted client", "after ncclCommRegister", "status at the survivor", "lane free again", "once it is back"):
            self.assertTrue(any(what in row for row in rows), f"no row of {what} in {rows}")
        self.assertIn("not measured: crossed pairs of four daemons: it takes 4 GPUs, there are 2", output)

    def test_four_gpus(self):
        _, rows = self.run_bench(4, "cliques")
        self.assertTrue(any("12 streams of four GPUs" in row for row in rows), rows)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
