#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The last released version and this tree's, as docs/versions.md says: daemons as each other's peers, clients and ferryctl
of the one with the daemon of the other. Those of one minor version must work together. Others work too, or are refused
with PROTOCOL_VERSION, where the text has what both ends speak and which one to update.

released_test.py BIN: the folder of this tree's programs. Skips (77) where `tools/released` has not made the released ones.
"""

import contextlib
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BYTES = 300_000  # of a transfer: several pieces on every route
ROUTES = {"local": 1, "mapped": 2, "tcp": 5}  # FERRY_ROUTE_...
PATIENCE = 60  # seconds


def lines_of(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read().split("\n")


def last_release():
    return next(found[1] for line in lines_of("CHANGELOG.md") if (found := re.match(r"## \[([0-9.]+)\] - ", line)))


def protocols():
    """release -> (the protocol between daemons, with clients) that it speaks newest, as docs/versions.md has them."""
    rows = [re.fullmatch(r"\| (\d+\.\d+\.\d+) \| (\d+) \| (\d+) \|", line) for line in lines_of("docs/versions.md")]
    return {row[1]: (int(row[2]), int(row[3])) for row in rows if row}


class Programs:
    """Those of one version."""

    def __init__(self, folder):
        self.folder = folder
        said = subprocess.run([self.path("ferryd"), "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.version = said.split()[1]

    def path(self, name):
        return os.path.join(self.folder, name)


RELEASED_BIN = os.path.join(ROOT, ".cache", "released", last_release(), "build", "release", "bin")
if not all(os.access(os.path.join(RELEASED_BIN, name), os.X_OK) for name in ("ferryd", "ferryctl", "ferry_test_client")):
    print(f"SKIPPED: there are no programs of {last_release()}: tools/released makes them")
    sys.exit(77)
HERE, RELEASED = Programs(sys.argv[1]), Programs(RELEASED_BIN)


class Process:
    """A program that answers a line with a line."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.unread = b""

    def tell(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def answer(self):
        while b"\n" not in self.unread:
            if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
                return "no answer"
            more = os.read(self.process.stdout.fileno(), 4096)
            if not more:
                return "it has ended"
            self.unread += more
        line, _, self.unread = self.unread.partition(b"\n")
        return line.decode()

    def ask(self, line):
        self.tell(line)
        return self.answer()

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.kill()
        self.process.wait()


class Node:
    """A daemon. `self.log` is its standard error."""

    def __init__(self, programs, runtime_dir, config):
        self.programs, self.runtime_dir = programs, runtime_dir
        with open(runtime_dir + ".yaml", "w", encoding="utf-8") as file:
            file.write(config)
        self.log = open(runtime_dir + ".log", "w+", encoding="utf-8")
        self.process = subprocess.Popen([programs.path("ferryd"), "--config", file.name], stderr=self.log)

    def ferryctl(self, *arguments, programs=None):
        """Exit status and output, of `programs` or of the daemon's own version."""
        done = subprocess.run([(programs or self.programs).path("ferryctl"), "--runtime-dir", self.runtime_dir, *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False)
        return done.returncode, done.stdout

    def end(self):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.log.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ReleasedTest(unittest.TestCase):
    def setUp(self):
        home = tempfile.TemporaryDirectory(prefix="released.")
        self.addCleanup(home.cleanup)
        self.home = home.name
        self.stack = contextlib.ExitStack()  # of processes; `with` ends those that there are
        self.addCleanup(self.stack.close)

    def nodes(self, *of_each):
        """Daemons node-a, node-b, ... of these versions, each with two host devices: 0 and 1, 2 and 3, ..."""
        ports = [free_port() for _ in of_each]
        members = "".join(f"    - {{ name: node-{chr(97 + i)}, address: \"127.0.0.1:{port}\", ids: [{2 * i}, {2 * i + 1}] }}\n"
                          for i, port in enumerate(ports))
        nodes = []
        for i, programs in enumerate(of_each):
            name = chr(97 + i)
            config = f"node: {{ name: node-{name}, runtime_dir: {self.home}/{name} }}\ndevices: {{ host: 2, gpus: [] }}\n"
            if len(of_each) > 1:
                config += f"membership:\n  provider: static\n  nodes:\n{members}peer: {{ listen: \"127.0.0.1:{ports[i]}\" }}\n"
            node = Node(programs, os.path.join(self.home, name), config)
            self.stack.callback(node.end)
            nodes.append(node)
        for node in nodes:
            self.assertEqual(node.ferryctl("health", "--wait", "30s")[0], 0)
        return nodes

    def client(self, node, programs):
        """(the client, how attaching went)"""
        client = Process(programs.path("ferry_test_client"), os.path.join(node.runtime_dir, "client"), "released")
        self.stack.callback(client.end)
        return client, client.answer()

    def assert_refused(self, text, protocol, *ends):
        """`text` refuses, with all that somebody needs to know. `protocol`: 0 between daemons, 1 with clients."""
        self.assertNotEqual(*(end.version.rsplit(".", 1)[0] for end in ends),
                            f"those of one minor version work together, and these do not: {text}")
        self.assertIn("PROTOCOL_VERSION", text)
        self.assertIn("; update ", text)
        for end in ends:
            self.assertRegex(text, rf"speaks versions? (\d+ to )?{protocols()[end.version][protocol]}\b")

    def move(self, source, destination, route, key):
        """Moves bytes from one (client, device) to the other, posted and then prepared. Returns how the posted ones ended."""
        (sender, from_device), (receiver, to_device) = source, destination
        ends = []
        for client, device, other, kind in ((receiver, to_device, from_device, "receive"), (sender, from_device, to_device, "send")):
            arena = client.ask(f"arena {device} {2 * BYTES}")
            self.assertRegex(arena, r"^OK \d+$")
            ends.append((client, arena.split()[1], f"{kind} {device} {other} {key}", kind))
        (_, into, _, _), (_, out_of, _, _) = ends
        words = f"route={ROUTES[route]} deadline_ms=30000"
        self.assertEqual(sender.ask(f"fill {out_of} 0 {BYTES} 7"), "OK")
        batches = [client.ask(f"{post} {arena} 0 {BYTES} {words}") for client, arena, post, _ in ends]
        over = []
        for (client, _, _, _), batch in zip(ends, batches):
            self.assertRegex(batch, r"^OK \d+$")
            over.append(client.ask(f"wait {batch.split()[1]} {PATIENCE * 500}"))
        if over != ["OK", "OK"]:
            return over
        self.assertEqual(receiver.ask(f"check {into} 0 {BYTES} 7"), "OK")

        self.assertEqual(sender.ask(f"fill {out_of} {BYTES} {BYTES} 8"), "OK")
        prepared = [client.ask(f"prepare_{post}.p {arena} {BYTES} {BYTES} route={ROUTES[route]}") for client, arena, post, _ in ends]
        for (client, _, _, _), batch in zip(ends, prepared):
            self.assertRegex(batch, r"^OK \d+$")
            client.tell(f"fire {batch.split()[1]} 3")
        self.assertEqual([client.answer() for client, _, _, _ in ends], ["OK 3", "OK 3"])
        self.assertEqual(receiver.ask(f"check {into} {BYTES} {BYTES} 8"), "OK")
        return over

    def test_daemons_of_both_versions_are_peers(self):
        nodes = self.nodes(RELEASED, HERE)
        (a, attached), (b, also) = (self.client(node, node.programs) for node in nodes)
        self.assertEqual((attached, also), ("OK", "OK"))
        for route in ("mapped", "tcp"):
            for source, destination in (((a, 0), (b, 2)), ((b, 3), (a, 1))):
                with self.subTest(route=route, source=source[1]):
                    over = self.move(source, destination, route, f"{route}-{source[1]}")
                    if over == ["OK", "OK"]:
                        continue
                    for node in nodes:
                        self.assert_refused(node.ferryctl("status")[1], 0, HERE, RELEASED)

    def test_clients_use_a_daemon_of_the_other_version(self):
        for of_daemon, of_client in ((HERE, RELEASED), (RELEASED, HERE)):
            with self.subTest(daemon=of_daemon.version, client=of_client.version), self.stack:
                (node,) = self.nodes(of_daemon)
                (sender, attached), (receiver, _) = (self.client(node, of_client) for _ in range(2))
                if attached == "OK":
                    self.assertEqual(self.move((sender, 0), (receiver, 1), "local", "key"), ["OK", "OK"])
                else:
                    self.assert_refused(attached, 1, HERE, RELEASED)

    def test_ferryctl_steers_a_daemon_of_the_other_version(self):
        for of_daemon, of_ferryctl in ((HERE, RELEASED), (RELEASED, HERE)):
            with self.subTest(daemon=of_daemon.version, ferryctl=of_ferryctl.version), self.stack:
                (node,) = self.nodes(of_daemon)
                for command in (("status",), ("devices",), ("sessions",), ("--json", "status"), ("dump",), ("drain",),
                                ("undrain",), ("bench", "latency", "--prepared", "--iterations", "20")):
                    status, output = node.ferryctl(*command, programs=of_ferryctl)
                    if status == 0:
                        self.assertNotIn("PROTOCOL_VERSION", output)
                    else:
                        self.assert_refused(output, 1, HERE, RELEASED)

    def test_the_table_of_protocols_has_both(self):
        for programs in (HERE, RELEASED):
            self.assertIn(programs.version, protocols())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
