# SPDX-License-Identifier: Apache-2.0
"""What deploy/k8s renders to: manifests_test.py TOOLS FERRYD, where TOOLS has kubectl and kubernetes-validate in bin.

Every overlay is rendered and held against the schemas of the two newest versions of Kubernetes, and against what
docs/kubernetes.md promises of it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import kubernetes_validate
import yaml

TOOLS, FERRYD = sys.argv[1:3]
FOLDER = os.path.join(os.path.dirname(__file__), "../../deploy/k8s")
OVERLAYS = sorted(os.listdir(f"{FOLDER}/overlays"))


def render(path):
    return subprocess.run([f"{TOOLS}/bin/kubectl", "kustomize", f"{FOLDER}/{path}"], check=True, capture_output=True, text=True).stdout


def complaints(text, version):
    """All lines but those that say of a resource that it passed: an unknown kind is a warning, with exit status 0."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([f"{TOOLS}/bin/kubernetes-validate", "-k", version, "--strict", file.name],
                              capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    resources = len([document for document in yaml.safe_load_all(text) if document])
    passed = [line for line in lines if line.startswith("INFO ")]
    return [line for line in lines if not line.startswith("INFO ")] + ([] if len(passed) == resources else [f"{len(passed)} of {resources} passed"])


def newest_versions():
    versions = sorted({tuple(map(int, version.split(".")[:2])) for version in kubernetes_validate.utils.all_versions()})
    return [".".join(map(str, version)) for version in versions[-2:]]


def pods(documents):
    for document in documents:
        if document["kind"] in ("DaemonSet", "Job"):
            yield document, document["spec"]["template"]["spec"]


class Page(unittest.TestCase):
    def test_an_overlay_of_ones_own_names_another_place_for_every_image(self):
        """The lines of docs/kubernetes.md that write it, as they stand there."""
        with open(f"{FOLDER}/../../docs/kubernetes.md", encoding="utf-8") as file:
            (lines,) = re.findall(r"^    (mkdir \S+/mine\n.*?\n    END)$", file.read(), re.MULTILINE | re.DOTALL)
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(FOLDER, f"{copy}/deploy/k8s")
            subprocess.run(["bash", "-c", lines.replace("\n    ", "\n")], cwd=copy, check=True)
            text = subprocess.run([f"{TOOLS}/bin/kubectl", "kustomize", f"{copy}/deploy/k8s/overlays/mine"], check=True,
                                  capture_output=True, text=True).stdout
        images = re.findall(r"image: (\S+)", text)
        self.assertGreater(len(images), 2)
        self.assertEqual(set(images), {"registry.example.com/ferryd:0.2.0"})


class Manifests(unittest.TestCase):
    rendered = {path: render(path) for path in ["base"] + [f"overlays/{name}" for name in OVERLAYS]}

    def documents(self):
        for path, text in self.rendered.items():
            yield path, [document for document in yaml.safe_load_all(text) if document]

    def daemons(self):
        for path, documents in self.documents():
            (pod,) = [pod for document, pod in pods(documents) if document["kind"] == "DaemonSet"]
            yield path, documents, pod, pod["containers"][0]

    def test_both_newest_versions_take_them(self):
        self.assertLessEqual({"quickstart", "runtimeclass"}, set(OVERLAYS))
        for path, text in self.rendered.items():
            for version in newest_versions():
                with self.subTest(path, version=version):
                    self.assertEqual(complaints(text, version), [])

    def test_the_check_would_see_a_mistake(self):
        text = self.rendered["base"]
        for good, bad in (("hostNetwork: true", "hostNetwrk: true"), ("hostNetwork: true", "hostNetwork: 'yes'"),
                          ("kind: DaemonSet", "kind: DemonSet")):
            self.assertIn(good, text)
            self.assertNotEqual(complaints(text.replace(good, bad), newest_versions()[-1]), [], bad)

    def test_no_pod_has_rights_that_it_does_not_need(self):
        for path, documents in self.documents():
            for document, pod in pods(documents):
                for key in ("hostPID", "hostIPC", "shareProcessNamespace"):
                    self.assertNotIn(key, pod)
                self.assertIs(pod["automountServiceAccountToken"], False)
                self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
                self.assertIs(pod.get("hostNetwork", False), document["kind"] == "DaemonSet")
                for container in pod["containers"] + pod.get("initContainers", []):
                    rights = container["securityContext"]
                    self.assertIs(rights["privileged"], False)
                    self.assertIs(rights["allowPrivilegeEscalation"], False)
                    self.assertIs(rights["readOnlyRootFilesystem"], True)
                    self.assertEqual(rights["capabilities"]["drop"], ["ALL"])
                    self.assertNotIn("limits", container["resources"])
                    if container["name"] == "runtime-dir":
                        self.assertEqual(rights["capabilities"]["add"], ["CHOWN"])
                    else:
                        self.assertNotIn("add", rights["capabilities"])
                        self.assertNotIn("runAsUser", rights)
                self.assertNotIn(0, [pod["securityContext"]["runAsUser"]], path)
            self.assertFalse([d["kind"] for d in documents if "Role" in d["kind"]])

    def test_the_daemon_is_nobody_that_clients_are(self):
        for _, documents, pod, _ in self.daemons():
            self.assertEqual(pod["securityContext"]["runAsUser"], 65532)
            for document, client in pods(documents):
                if document["kind"] == "Job":
                    self.assertNotEqual(client["securityContext"]["runAsUser"], 65532)
                    (host,) = [volume["hostPath"] for volume in client["volumes"] if "hostPath" in volume]
                    self.assertEqual(host, {"path": "/run/ferry/client", "type": "Directory"})

    def test_what_is_in_flight_is_drained_before_the_kubelet_kills(self):
        for path, documents, pod, _ in self.daemons():
            (config,) = [document["data"]["ferryd.yaml"] for document in documents if document["kind"] == "ConfigMap"]
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(config)
                file.flush()
                environment = {"FERRY_NODE__NAME": "node-a", "FERRY_PEER__LISTEN": "192.0.2.1:7411"} if path == "overlays/two-nodes" else {}
                text = subprocess.run([FERRYD, "--config", file.name, "--print-config"], env=environment,
                                      capture_output=True, text=True, check=False)
            timeout = re.search(r"^drain:\n(?:  .*\n)*?  timeout: (\w+)", text.stdout, re.M)
            self.assertIsNotNone(timeout, text.stdout + text.stderr)
            seconds = sum(int(number) * {"s": 1, "m": 60, "h": 3600}[unit] for number, unit in re.findall(r"(\d+)([smh])", timeout.group(1)))
            self.assertGreaterEqual(pod["terminationGracePeriodSeconds"], seconds + 30)

    def test_probes_end_before_the_kubelets_patience(self):
        for _, _, _, container in self.daemons():
            for name in ("startup", "readiness", "liveness"):
                probe = container[f"{name}Probe"]
                command = probe["exec"]["command"]
                self.assertEqual(command[0], "/usr/bin/ferryctl")
                self.assertEqual(command[command.index("--service") + 1], name)
                own = command[command.index("--wait" if name == "startup" else "--timeout") + 1]
                self.assertLess(int(own.rstrip("s")), probe["timeoutSeconds"])

    def test_gpus_take_none_from_jobs(self):
        for path, text in self.rendered.items():
            self.assertNotRegex(text, r"nvidia\.com/gpu: *[\"0-9]", path)
        for path, _, pod, container in self.daemons():
            names = [entry["name"] for entry in container["env"]]
            self.assertEqual("NVIDIA_VISIBLE_DEVICES" in names, path == "overlays/runtimeclass")
            self.assertEqual(pod.get("runtimeClassName"), "nvidia" if path == "overlays/runtimeclass" else None)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
