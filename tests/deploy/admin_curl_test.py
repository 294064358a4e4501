#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each call for operators answers a client that knows no more than reflection tells it: `buf curl`, over admin.sock.

admin_curl_test.py FERRYD BUF
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

FERRYD, BUF = sys.argv[1:3]
SERVICE = "ferry.admin.v1.AdminService"
# What each is asked, and what it answers on a node with two idle host devices: text of the answer, or an error's code.
CALLS = {
    "GetStatus": ({}, "uptime"),
    "ListDevices": ({}, '"host1"'),
    "GetActivity": ({"limit": 10}, '"devices"'),
    "ListSessions": ({}, "{}"),
    "ListTransfers": ({"limit": 10}, "{}"),
    "ListJobs": ({}, "{}"),
    "ListMembers": ({}, "{}"),
    "ListBarredPrograms": ({}, "{}"),
    "ReleasePrograms": ({"fingerprints": ["AAAAAAAAAAA="]}, 5),
    "ExplainRoute": ({"srcGlobalDeviceId": 0, "dstGlobalDeviceId": 1, "bytes": 8}, "ROUTE_LOCAL"),
    "ListComms": ({}, "{}"),
    "WarmComm": ({"deviceId": 0, "otherDeviceId": 1}, 3),
    "EvictComm": ({"deviceId": 0, "otherDeviceId": 1}, 5),
    "AbortComm": ({"deviceId": 0, "otherDeviceId": 1}, 5),
    "ReleaseDevice": ({"globalDeviceId": 0}, 5),
    "ReclaimDevice": ({"globalDeviceId": 0}, 5),
    "Dump": ({}, "device 0 host0"),
    "GetFlight": ({}, '"events"'),
    "CancelTransfers": ({"transfers": [{"sessionId": 1, "transferId": 1}]}, 5),
    "CloseSession": ({"sessionId": 77}, 5),
    "Drain": ({"deadline": "0.1s"}, "{"),
    "Undrain": ({}, "{}"),
    "Reload": ({"wait": True}, '"generation"'),
    "SetLogLevel": ({"level": "loud"}, 3),
}


class AdminCurlTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="ferry-")
        cls.socket = os.path.join(cls.directory.name, "admin", "admin.sock")
        config = os.path.join(cls.directory.name, "ferryd.yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"node: {{ runtime_dir: {cls.directory.name} }}\ndevices: {{ host: 2, gpus: none }}\n")
        cls.daemon = subprocess.Popen([FERRYD, "--config", config], stderr=subprocess.DEVNULL)
        ctl = os.path.join(os.path.dirname(FERRYD), "ferryctl")
        subprocess.run([ctl, "--runtime-dir", cls.directory.name, "health", "--wait", "60s"], check=True,
                       stdout=subprocess.DEVNULL, timeout=90)

    @classmethod
    def tearDownClass(cls):
        cls.daemon.send_signal(signal.SIGTERM)
        cls.daemon.wait(60)
        cls.directory.cleanup()

    def curl(self, *arguments):
        return subprocess.run([BUF, "curl", "--unix-socket", self.socket, *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60, check=False)

    def test_each_call_answers(self):
        listed = self.curl("--protocol", "grpc", "--list-methods", "http://localhost")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        methods = [line.split("/")[1] for line in listed.stdout.split() if line.startswith(SERVICE + "/")]
        self.assertEqual(sorted(methods), sorted(CALLS), "a call that this test does not know, or knows alone")
        for method, (request, wanted) in CALLS.items():
            with self.subTest(method):
                done = self.curl("--protocol", "grpc", "--data", json.dumps(request),
                                 f"http://localhost/{SERVICE}/{method}")
                if isinstance(wanted, str):
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn(wanted, done.stdout)
                else:
                    # buf's exit status is eight times gRPC's code.
                    self.assertEqual(done.returncode, 8 * wanted, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
