#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_layers.py passes the tree as it is and finds an include planted in the wrong direction."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
CHECK = os.path.join(ROOT, "tools", "check_layers.py")
FOLDERS = ["proto", "base", "device", "transfer", "daemon", "client", "tools", "tests", "bench"]
HEADERS = (".h", ".hpp", ".cc")


def run(root):
    done = subprocess.run([sys.executable, "-B", CHECK, root], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class CheckLayersTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="layers.")
        self.addCleanup(shutil.rmtree, self.root)
        for folder in FOLDERS:
            for at, _, files in os.walk(os.path.join(ROOT, folder)):
                to = os.path.join(self.root, os.path.relpath(at, ROOT))
                os.makedirs(to, exist_ok=True)
                for name in files:
                    if name.endswith(HEADERS):
                        shutil.copy(os.path.join(at, name), to)
        self.before = run(self.root)[1].splitlines()

    def plant(self, path, include):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"\n#include {include}\n")

    def test_the_tree_as_it_is_passes(self):
        self.assertEqual(run(ROOT), (0, ""))

    def new_problems(self):
        """What the planted include adds: the tree's own problems are the test above's affair."""
        status, output = run(self.root)
        problems = [line for line in output.splitlines() if line not in self.before]
        self.assertEqual(status, 1 if problems or self.before else 0, output)
        return problems

    def test_a_planted_include_fails(self):
        wrong = [
            ("base/ids.h", '"device/lane.h"'),
            ("base/planted.cc", '"transfer/types.h"'),
            ("device/lane.h", '"transfer/engine.h"'),
            ("device/lane.h", '"device/host/copy.h"'),
            ("transfer/engine.h", '"daemon/config/config.h"'),
            ("transfer/engine.h", '"transfer/ucx/ucx_transport.h"'),
            ("transfer/ucx/planted.cc", '"transfer/mapped/lane_page.h"'),
            ("transfer/local/planted.cc", '"transfer/ucx/ucx_transport.h"'),
            ("transfer/planted.cc", '"compute/planner.h"'),
            ("compute/planted.cc", '"transfer/types.h"'),
            ("transfer/clique/planted.cc", '"transfer/rules/half_ends.h"'),
            ("transfer/clique/planted.cc", '"transfer/posted.h"'),
            ("transfer/tcp/planted.cc", '"transfer/clique/cliques.h"'),
            ("transfer/tcp/planted.cc", '"transfer/posted.h"'),
            ("daemon/planted.cc", '"transfer/rules/half_ends.h"'),
            ("daemon/planted.cc", '"transfer/posted.h"'),
            ("tests/planted.cc", '"transfer/posted.h"'),
            ("tests/planted.cc", '"transfer/engine_state.h"'),
            ("transfer/engine_planted.h", '"transfer/engine_state.h"'),
            ("transfer/planted.cc", '"transfer/engine_state.h"'),
            ("transfer/rules/planted.cc", '"transfer/engine_state.h"'),
            ("daemon/session/planted.cc", '"daemon/job/job_table.h"'),
            ("daemon/session/planted.cc", '"compute/plan/plan.h"'),
            ("daemon/session/planted.cc", '"daemon/rpc/convert.h"'),
            ("daemon/job/planted.cc", '"daemon/rpc/convert.h"'),
            ("daemon/job/planted.cc", '"transfer/tcp/tcp_transport.h"'),
            ("daemon/planted.cc", '"client/include/ferry/ferry.h"'),
            ("daemon/planted.cc", '"ferry/v1/types.pb.h"'),
            ("daemon/planted.cc", "<grpcpp/server.h>"),
            ("daemon/planted.cc", "<ucp/api/ucp.h>"),
            ("daemon/planted.cc", "<spdlog/spdlog.h>"),
            ("client/planted.cc", '"base/ids.h"'),
            ("client/planted.cc", '"ferry/v1/types.pb.h"'),
            ("client/include/ferry/ferry.h", '"absl/types/span.h"'),
            ("tools/ferryctl/planted.cc", '"daemon/config/config.h"'),
            ("transfer/planted.cc", "<ucp/api/ucp.h>"),
            ("transfer/planted.cc", "<cuda_runtime.h>"),
            ("transfer/planted.cc", "<nccl.h>"),
            ("base/planted.cc", "<yaml-cpp/yaml.h>"),
            ("transfer/planted.cc", "<prometheus/counter.h>"),
            ("base/planted.cc", "<a_new_library/x.h>"),
        ]
        for path, include in wrong:
            with self.subTest(path=path, include=include):
                before = os.path.join(self.root, path)
                saved = None
                if os.path.exists(before):
                    with open(before, encoding="utf-8") as file:
                        saved = file.read()
                self.plant(path, include)
                problems = self.new_problems()
                self.assertEqual(len(problems), 1, problems)
                self.assertRegex(problems[0], f"^{re.escape(path)}:[0-9]+: includes {include[1:-1]}: ")
                if saved is None:
                    os.remove(before)
                else:
                    with open(before, "w", encoding="utf-8") as file:
                        file.write(saved)

    def test_what_the_table_allows_passes(self):
        for path, include in [
            ("device/planted.cc", '"base/ids.h"'),
            ("transfer/ucx/planted.cc", "<ucp/api/ucp.h>"),
            ("transfer/ucx/planted.cc", '"device/host/copy.h"'),
            ("transfer/rules/planted.cc", '"transfer/posted.h"'),
            ("transfer/planted.cc", '"transfer/posted.h"'),
            ("transfer/engine_planted.cc", '"transfer/engine_state.h"'),
            ("transfer/nccl/planted.cc", '"transfer/clique/group.h"'),
            ("daemon/job/planted.cc", '"daemon/session/session_table.h"'),
            ("daemon/rpc/planted.cc", '"daemon/job/job_table.h"'),
            ("daemon/rpc/planted.cc", '"ferry/v1/types.pb.h"'),
            ("daemon/rpc/planted.cc", "<grpcpp/server.h>"),
            ("client/planted.cc", '"proto/ferry/v1/timeline_layout.h"'),
            ("client/planted.cc", "<sys/mman.h>"),
            ("tests/planted.cc", '"transfer/engine.h"'),
        ]:
            self.plant(path, include)
        self.assertEqual(self.new_problems(), [])


if __name__ == "__main__":
    unittest.main()
