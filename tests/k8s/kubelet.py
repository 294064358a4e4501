# SPDX-License-Identifier: Apache-2.0
"""Stands in for a kubelet and its container runtime: runs a pod of a rendered manifest as crun would be asked to.

It takes of a pod what deploy/k8s uses, and refuses what it does not know: users, rights, the default seccomp profile, read-only
roots, volumes with the owners and modes that a kubelet gives them, downward fields, probes, init containers. Each container has
a PID, mount, IPC and, unless hostNetwork, network namespace of its own. No scheduler, no cgroups. To be run as root in a mount,
PID and network namespace, which end with it.
"""

import json
import os
import re
import signal
import subprocess
import time

SECCOMP = "/usr/share/containers/seccomp.json"
MASKED = ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats",
          "/proc/sched_debug", "/proc/scsi", "/sys/firmware"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
POD_KEYS = {"affinity", "automountServiceAccountToken", "containers", "dnsPolicy", "enableServiceLinks", "hostNetwork",
            "initContainers", "nodeSelector", "priorityClassName", "restartPolicy", "securityContext", "serviceAccountName",
            "terminationGracePeriodSeconds", "tolerations", "volumes"}


class Refused(Exception):
    """What a kubelet would write into an event of the pod."""


def must_know(what, keys, known):
    unknown = set(keys) - known
    if unknown:
        raise Refused(f"{what} has what this stand-in does not know: {sorted(unknown)}")


def seccomp(capabilities):
    """The runtime's default profile, for a process with these capabilities."""
    with open(SECCOMP, encoding="utf-8") as file:
        profile = json.load(file)
    arch = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    calls = []
    for rule in profile["syscalls"]:
        includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
        if arch not in includes.get("arches", [arch]) or not set(includes.get("caps", [])) <= set(capabilities):
            continue
        if set(excludes.get("caps", [])) & set(capabilities):
            continue
        calls.append({key: rule[key] for key in ("names", "action", "errnoRet", "args") if rule.get(key)})
    architecture = {"amd64": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"], "arm64": ["SCMP_ARCH_AARCH64"]}
    return {"defaultAction": profile["defaultAction"], "defaultErrnoRet": profile["defaultErrnoRet"],
            "architectures": architecture[arch], "syscalls": calls}


class Container:
    def __init__(self, kubelet, name, config):
        self.kubelet, self.name = kubelet, f"{name}-{kubelet.count()}"
        self.process_of_exec = config["process"]
        bundle = kubelet.make(f"bundles/{self.name}")
        for part in ("upper", "work", "rootfs"):
            os.mkdir(f"{bundle}/{part}")
        # Of its own, as with any runtime: where the volumes go must be made.
        os.makedirs(f"{bundle}/upper/etc", exist_ok=True)
        with open(f"{bundle}/upper/etc/hosts", "w", encoding="utf-8") as hosts:  # the kubelet gives each container one
            hosts.write("127.0.0.1 localhost\n::1 localhost ip6-localhost\n")
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                        f"lowerdir={kubelet.image},upperdir={bundle}/upper,workdir={bundle}/work", f"{bundle}/rootfs"], check=True)
        with open(f"{bundle}/config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        self.log = f"{bundle}/log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([*kubelet.crun, "run", "--bundle", bundle, "--pid-file", f"{bundle}/pid", self.name],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.pid_file = f"{bundle}/pid"

    def pid(self):
        with open(self.pid_file, encoding="utf-8") as file:
            return int(file.read())

    def output(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def exec(self, command, seconds=30):
        """(exit status, output), or 'timeout', as a probe has it."""
        process = {**self.process_of_exec, "args": command}
        path = f"{os.path.dirname(self.log)}/exec.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(process, file)
        try:
            done = subprocess.run([*self.kubelet.crun, "exec", "--process", path, self.name], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return "timeout", ""
        return done.returncode, done.stdout.decode(errors="replace")

    def wait(self, seconds):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self, grace):
        """As a pod that is deleted. The exit status, None if it had to be killed."""
        os.kill(self.pid(), signal.SIGTERM)
        status = self.wait(grace)
        if status is None:
            os.kill(self.pid(), signal.SIGKILL)
            self.wait(30)
        return status


class Pod:
    def __init__(self, spec, container):
        self.spec, self.container = spec, container
        self.declared = spec["containers"][0]

    def probe(self, name):
        """What the kubelet's one try says: True or what was wrong."""
        probe = self.declared[f"{name}Probe"]
        status, output = self.container.exec(probe["exec"]["command"], probe["timeoutSeconds"])
        return True if status == 0 else f"{name}: {status}: {output.strip()}"

    def await_started(self):
        probe, said = self.declared["startupProbe"], "never asked"
        for _ in range(probe["failureThreshold"]):
            if self.container.process.poll() is not None:
                raise Refused(f"exit status {self.container.process.returncode}:\n{self.container.output()}")
            said = self.probe("startup")
            if said is True:
                return
            time.sleep(probe["periodSeconds"] / 10)
        raise Refused(f"{said}\n{self.container.output()}")

    def terminate(self):
        return self.container.terminate(self.spec["terminationGracePeriodSeconds"])


class Kubelet:
    """One node. `directory` becomes its disk, `documents` are what the API server has, `secrets` {name: {key: bytes}}."""

    def __init__(self, name, address, directory, image, image_config, documents, secrets=None):
        self.name, self.address, self.directory, self.image = name, address, directory, image
        self.image_config, self.documents, self.secrets = image_config, documents, secrets or {}
        self.number = 0
        os.makedirs(f"{directory}/host/run")
        self.crun = ["crun", "--root", self.make("crun"), "--cgroup-manager=disabled"]

    def count(self):
        self.number += 1
        return self.number

    def make(self, path):
        os.makedirs(f"{self.directory}/{path}", exist_ok=True)
        return f"{self.directory}/{path}"

    def host(self, path):
        return f"{self.directory}/host{path}"

    def find(self, kind, name):
        for document in self.documents:
            if document["kind"] == kind and document["metadata"]["name"] == name:
                return document
        raise Refused(f"there is no {kind} {name}")

    def run(self, template, command=None):
        """A pod: its init containers to their ends, then its container. `command` goes in place of the container's."""
        spec = template["spec"]
        must_know("the pod", spec, POD_KEYS)
        volumes = {volume["name"]: self.volume(volume, spec) for volume in spec.get("volumes", [])}
        for declared in spec.get("initContainers", []):
            container = Container(self, declared["name"], self.config(spec, declared, volumes))
            if container.wait(60) != 0:
                raise Refused(f"init container {declared['name']}: {container.process.poll()}: {container.output()}")
        (declared,) = spec["containers"]
        if command is not None:
            declared = {**declared, "command": command}
        return Pod(spec, Container(self, declared["name"], self.config(spec, declared, volumes)))

    def volume(self, volume, spec):
        """Its directory on this machine, None if there is nothing to mount."""
        group = spec.get("securityContext", {}).get("fsGroup")
        kind = next(key for key in volume if key != "name")
        source = volume[kind]
        if kind == "hostPath":
            path = self.host(source["path"])
            if source["type"] == "DirectoryOrCreate" and not os.path.isdir(path):
                os.makedirs(path, 0o755)
            if not os.path.isdir(path):
                raise Refused(f"hostPath type check failed: {source['path']} is not a directory")
            return path  # whose owner no fsGroup changes
        directory = self.make(f"volumes/{self.count()}")
        if kind == "emptyDir":
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + source["sizeLimit"].rstrip("i").lower(), "tmpfs", directory], check=True)
            os.chown(directory, 0, 0 if group is None else group)
            os.chmod(directory, 0o777 if group is None else 0o2777)
            return directory
        if kind == "configMap":
            files = {key: text.encode() for key, text in self.find("ConfigMap", source["name"])["data"].items()}
        elif kind == "secret":
            if source["secretName"] not in self.secrets and not source.get("optional"):
                raise Refused(f"there is no Secret {source['secretName']}")
            files = self.secrets.get(source["secretName"], {})
        else:
            raise Refused(f"a volume of kind {kind}")
        self.project(directory, files, source.get("defaultMode", 0o644), group)
        return directory

    def project(self, directory, files, mode, group):
        """As a kubelet writes ConfigMaps and Secrets: links to links, so that all files change at once."""
        os.mkdir(f"{directory}/..2026")
        os.symlink("..2026", f"{directory}/..data")
        for name, content in files.items():
            path = f"{directory}/..2026/{name}"
            with open(path, "wb") as file:
                file.write(content)
            os.chown(path, 0, 0 if group is None else group)
            os.chmod(path, mode if group is None else mode | 0o440)
            os.symlink(f"..data/{name}", f"{directory}/{name}")

    def environment(self, declared):
        fields = {"spec.nodeName": self.name, "status.hostIP": self.address}
        values = dict(entry.split("=", 1) for entry in self.image_config.get("Env", []))
        for entry in declared.get("env", []):
            if "valueFrom" in entry:
                values[entry["name"]] = fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
            else:
                values[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda match: values[match.group(1)], entry["value"])
        return [f"{name}={value}" for name, value in values.items()]

    def process(self, spec, declared):
        rights = {**spec.get("securityContext", {}), **declared.get("securityContext", {})}
        must_know("a securityContext", rights, {"allowPrivilegeEscalation", "capabilities", "fsGroup", "privileged", "readOnlyRootFilesystem",
                                                "runAsGroup", "runAsNonRoot", "runAsUser", "seccompProfile"})
        if rights["capabilities"]["drop"] != ["ALL"] or rights["privileged"] or not rights["readOnlyRootFilesystem"]:
            raise Refused("this stand-in only runs containers without rights")
        if rights["runAsNonRoot"] and rights["runAsUser"] == 0:
            raise Refused("container's runAsUser breaks non-root policy")
        added = [f"CAP_{name}" for name in rights["capabilities"].get("add", [])]
        user = {"uid": rights["runAsUser"], "gid": rights["runAsGroup"]}
        if "fsGroup" in rights:
            user["additionalGids"] = [rights["fsGroup"]]
        arguments = declared.get("command", self.image_config.get("Entrypoint")) + declared.get("args", [])
        return {"terminal": False, "user": user, "cwd": "/", "args": arguments, "env": self.environment(declared),
                "noNewPrivileges": not rights["allowPrivilegeEscalation"],
                "capabilities": {"bounding": added, "effective": added if user["uid"] == 0 else [],
                                 "permitted": added if user["uid"] == 0 else [], "inheritable": [], "ambient": []}}

    def config(self, spec, declared, volumes):
        own_network = not spec.get("hostNetwork", False)
        mounts = [{"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
                  {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
                  {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
                  {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
                   "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]},
                  {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]}]
        for mount in declared.get("volumeMounts", []):
            mounts = [other for other in mounts if other["destination"] != mount["mountPath"]]
            mounts.append({"destination": mount["mountPath"], "type": "bind", "source": volumes[mount["name"]],
                           "options": ["rbind", "rprivate", "ro" if mount.get("readOnly") else "rw"]})
        process = self.process(spec, declared)
        kinds = ["pid", "mount", "ipc", "uts"] + (["network"] if own_network else [])
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        return {"ociVersion": "1.0.2", "process": process, "root": {"path": "rootfs", "readonly": True},
                "hostname": self.name, "mounts": mounts,
                "linux": {"namespaces": [{"type": kind} for kind in kinds], "maskedPaths": MASKED, "readonlyPaths": READ_ONLY,
                          "seccomp": seccomp(process["capabilities"]["bounding"])}}
