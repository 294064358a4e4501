# SPDX-License-Identifier: Apache-2.0
"""The pods of deploy/k8s in the image's root, by the stand-in for a kubelet beside this file. tools/k8s-test runs it.

image_test.py TOOLS ROOT IMAGE.json DIRECTORY BUILD part|all|no: the image's root and what buildah inspect says of it, a directory
for the nodes' disks, a build of whose e2e suite a part, all, or nothing is run as well.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

import yaml

sys.path.insert(0, os.path.dirname(__file__))
from kubelet import Container, Kubelet, Refused  # noqa: E402

TOOLS, ROOT, IMAGE, DIRECTORY, BUILD, E2E = sys.argv[1:7]
SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
UID = 65532
SOON = 60  # what takes a second, on a machine that has much else to do


def documents(path):
    text = subprocess.run([f"{TOOLS}/bin/kubectl", "kustomize", f"{SOURCE}/deploy/k8s/{path}"], check=True, capture_output=True).stdout
    return [document for document in yaml.safe_load_all(text) if document]


def page(prefix):
    """The one line of the page that begins so."""
    with open(f"{SOURCE}/docs/kubernetes.md", encoding="utf-8") as file:
        (line,) = [line[4:].rstrip("\n") for line in file if line.startswith("    " + prefix)]
    return line


def image_config():
    with open(IMAGE, encoding="utf-8") as file:
        return json.load(file)["OCIv1"]["config"]


class Cluster:
    """Nodes that have what `path` renders to. Ends what runs on them."""

    def __init__(self, test, path, nodes, secrets=None, tag=""):
        self.documents = documents(path)
        self.nodes = {}
        for name, address in nodes.items():
            directory = f"{DIRECTORY}/{test.id().rsplit('.', 1)[-1]}{tag}-{name}"
            self.nodes[name] = Kubelet(name, address, directory, ROOT, image_config(), self.documents, secrets)

    def template(self, kind, name):
        return next(d for d in self.documents if d["kind"] == kind and d["metadata"]["name"] == name)["spec"]["template"]

    def daemon(self, node):
        return self.nodes[node].run(self.template("DaemonSet", "ferryd"))

    def start(self, node):
        pod = self.daemon(node)
        pod.await_started()
        return pod

    def job(self, name, **more):
        """On the node that its selector names, else on the first one."""
        template = self.template("Job", name)
        node = template["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname", next(iter(self.nodes)))
        return self.nodes[node].run(template, **more).container

    def move(self, test):
        receiver, sender = self.job("receiver"), self.job("sender")
        for job in (sender, receiver):
            test.assertEqual(job.wait(SOON), 0, f"{job.name}: {sender.output()} {receiver.output()}")
        test.assertIn("received what was sent", receiver.output())


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


class Image(unittest.TestCase):
    maxDiff = None

    def one_node(self, path):
        return Cluster(self, path, {"node-a": "192.0.2.1"})

    def test_the_image_is_what_the_packages_have(self):
        config = image_config()
        self.assertEqual(config["User"], f"{UID}:{UID}")
        self.assertEqual(config["Entrypoint"], ["/usr/bin/ferryd"])
        for path in ("etc/ferry", "usr/lib/systemd/system/ferryd.service", "packages", "image"):
            self.assertFalse(os.path.lexists(f"{ROOT}/{path}"), path)
        for program in ("ferryd", "ferryctl"):
            self.assertEqual(os.stat(f"{ROOT}/usr/bin/{program}").st_mode & 0o7777, 0o755)

    def test_the_base_runs_where_the_node_has_a_directory_for_it(self):
        cluster = self.one_node("base")
        with self.assertRaisesRegex(Refused, "/run/ferry is not a directory"):
            cluster.daemon("node-a")
        os.makedirs(cluster.nodes["node-a"].host("/usr/lib/tmpfiles.d"))
        with open(cluster.nodes["node-a"].host("/usr/lib/tmpfiles.d/ferry.conf"), "w", encoding="utf-8") as file:
            file.write(page("d /run/ferry") + "\n")
        subprocess.run(["systemd-tmpfiles", "--create", "--root", cluster.nodes["node-a"].host(""), "ferry.conf"], check=True)
        pod = cluster.start("node-a")
        self.assertEqual([pod.probe(name) for name in ("startup", "readiness", "liveness")], [True] * 3)
        status, output = pod.container.exec(["/usr/bin/ferryctl", "status"])
        self.assertEqual(status, 0, output)
        self.assertIn("node-a", output)

        status = status_of(pod.container.pid())
        self.assertEqual(status["Uid"].split(), [str(UID)] * 4)
        for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[key], 16), 0, key)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        for path in ("/file", "/usr/bin/file", "/etc/ferry/file", "/etc/ferry-peer/file"):
            status, output = pod.container.exec(["/usr/bin/touch", path])
            self.assertIn("Read-only file system", output)

        pod.container.exec(["/usr/bin/ferryctl", "drain"])
        self.assertEqual([pod.probe(name) is True for name in ("startup", "readiness", "liveness")], [True, False, True])
        self.assertEqual(pod.terminate(), 0, pod.container.output())

    def test_a_directory_of_root_is_refused_in_words(self):
        cluster = self.one_node("base")
        os.mkdir(cluster.nodes["node-a"].host("/run/ferry"))
        with self.assertRaisesRegex(Refused, "(?s)exit status 78:.*/run/ferry.*it belongs to uid 0"):
            cluster.start("node-a")

    def test_the_quick_start(self):
        cluster = self.one_node("overlays/quickstart")
        with self.assertRaisesRegex(Refused, "/run/ferry/client is not a directory"):
            cluster.job("sender")  # waits for the daemon, as a pod that is not yet created
        pod = cluster.start("node-a")
        host = cluster.nodes["node-a"].host
        self.assertEqual(os.stat(host("/run/ferry")).st_uid, UID)
        cluster.move(self)

        look = cluster.job("sender", command=["/bin/sh", "-c", "ls /run/ferry; ls /run/ferry/client; rm -f /run/ferry/client/*; id -u"])
        self.assertEqual(look.wait(SOON), 0)
        self.assertIn("Read-only file system", look.output())
        self.assertEqual([line for line in look.output().splitlines() if "Read-only" not in line],
                         ["client", "attach.sock", "client.sock", "10001"])

        # An update: what the clients' pods have mounted stays where it is.
        before = os.stat(host("/run/ferry/client")).st_ino
        self.assertEqual(pod.terminate(), 0, pod.container.output())
        pod = cluster.start("node-a")
        self.assertEqual(os.stat(host("/run/ferry/client")).st_ino, before)
        cluster.move(self)
        self.assertEqual(pod.terminate(), 0)

    def test_two_nodes(self):
        addresses = {"node-a": "192.0.2.1", "node-b": "192.0.2.2"}
        without = Cluster(self, "overlays/two-nodes", {"node-a": addresses["node-a"]}, tag="-without")
        with self.assertRaisesRegex(Refused, "(?s)exit status 78:.*/etc/ferry-peer/secret.*No such file"):
            without.start("node-a")
        for address in addresses.values():
            subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
        subprocess.run(page("head -c 32 /dev/urandom"), shell=True, check=True, cwd=DIRECTORY)
        with open(f"{DIRECTORY}/ferry.secret", "rb") as file:
            secrets = {"ferry-peer": {"secret": file.read()}}
        cluster = Cluster(self, "overlays/two-nodes", addresses, secrets)
        pods = [cluster.start(node) for node in addresses]
        cluster.move(self)
        status, output = pods[0].container.exec(["/usr/bin/ferryctl", "route", "0", "2"])
        self.assertEqual(status, 0, output)
        self.assertIn("tcp", output)
        for pod in pods:
            self.assertEqual(pod.terminate(), 0, pod.container.output())


# Of the suite what takes seconds: all of it is a stage of tools/test --full.
SUITES = "OperationsTest PostSocketTest PreparedJobTest ProgramTest ReloadTest StartTest FlightTest"


def not_here():
    """The tests that need what the image has not, as NOT_IN_THE_IMAGE says with the reason for each."""
    with open(f"{SOURCE}/tests/k8s/NOT_IN_THE_IMAGE", encoding="utf-8") as file:
        entries = [line.split(": ", 1) for line in file if line.strip() and not line.startswith("#")]
    if any(len(entry) != 2 or not entry[1].strip() for entry in entries):
        raise ValueError("NOT_IN_THE_IMAGE has an entry without a reason")
    return [name for name, _ in entries]


class EndToEnd(unittest.TestCase):
    """The e2e suite, of a build, with the image's ferryd and ferryctl, as the DaemonSet's container would be run."""

    def extra(self, directory):
        """What the suite needs and the image has not: its programs, beside ferryd, and their libraries."""
        programs = [f"{BUILD}/bin/{name}" for name in ("ferry_e2e_tests", "ferry_test_client")]
        libraries = glob.glob("/usr/lib/*-linux-gnu/libc.so.6")[0].rsplit("/", 1)[0]
        for folder in ("usr/bin", libraries[1:]):
            os.makedirs(f"{directory}/{folder}")
        for program in programs:
            shutil.copy(program, f"{directory}/usr/bin")
        needed = subprocess.run(["ldd", *programs, *glob.glob(f"{BUILD}/lib/*.so")], check=True, capture_output=True, text=True).stdout
        for name, path in re.findall(r"^\t(\S+) => (/\S+)", needed, re.M):
            if not path.startswith(BUILD) and not os.path.exists(f"{ROOT}{libraries}/{name}"):
                shutil.copy(path, f"{directory}{libraries}/{name}")

    def run_suite(self, chosen, at_least, seconds):
        node = Kubelet("node-a", "192.0.2.1", f"{DIRECTORY}/e2e", ROOT, image_config(), [])
        self.extra(node.make("extra"))
        node.image = f"{DIRECTORY}/e2e/extra:{ROOT}"
        (template,) = [d["spec"]["template"]["spec"] for d in documents("base") if d["kind"] == "DaemonSet"]
        (declared,) = template["containers"]
        tmp = node.make("tmp")
        os.chmod(tmp, 0o1777)
        # Each in a process of its own, as ctest has it: one that ends badly takes none along.
        script = """cd /tmp; ferry_e2e_tests --gtest_filter="$0-$1" --gtest_list_tests | awk '/^[^ ]/ { suite = $1 } /^ / { print suite $1 }' > tests
            xargs -P 2 -I % sh -c 'log=/tmp/$(echo % | tr / _); timeout 180 ferry_e2e_tests --gtest_filter=% > $log 2>&1 \
                || { tail -n 60 $log; echo "BAD %"; exit 1; }; tail -n 1 $log; rm $log' < tests"""
        declared = {**declared, "args": [], "env": [], "command": ["sh", "-c", script, chosen, ":".join(not_here())],
                    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "source", "mountPath": SOURCE, "readOnly": True}]}
        container = Container(node, "e2e", node.config(template, declared, {"tmp": tmp, "source": SOURCE}))
        self.assertEqual(container.wait(seconds), 0, container.output())
        self.assertGreater(container.output().count("PASSED  ] 1 test."), at_least, container.output())

    @unittest.skipIf(E2E != "part", "not wanted")
    def test_a_part_of_the_suite(self):
        self.run_suite(":".join(f"{suite}.*" for suite in SUITES.split()), 30, 300)

    @unittest.skipIf(E2E != "all", "not wanted")
    def test_the_suite(self):
        self.run_suite("*", 400, 1800)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[7:], verbosity=2)
