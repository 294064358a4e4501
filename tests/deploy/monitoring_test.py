#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Alerts and dashboard of deploy/ against what daemons really say: promtool takes the rules, a real Prometheus scrapes two
daemons that have moved bytes by several routes, evaluates every rule and answers every query of the dashboard.

monitoring_test.py BIN PROMETHEUS FAKE_CUDA FAKE_NCCL: the folders of ferryd and of prometheus (where there is none on the
PATH), and what stands in for GPUs.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BIN, SETUP_BIN, FAKE_CUDA, FAKE_NCCL = sys.argv[1:5]
PROMETHEUS = os.path.join(ROOT, "deploy", "prometheus")
FOREIGN = {"up": {"job", "instance"}, "ALERTS": {"job", "instance", "alertname", "alertstate"}}
WORDS = {"and", "or", "unless", "offset", "bool"}
GROUPING = r"\b(by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)"


def program(name):
    found = shutil.which(name, path=os.environ["PATH"] + ":" + SETUP_BIN)
    assert found, f"there is no {name}: run tools/setup"
    return found


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def run(*command, status=0, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False, **more)
    assert done.returncode == status, f"{command}: {done.returncode}: {done.stdout}"
    return done.stdout


def wait_until(what, condition):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within a minute: {what}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def documented():
    """The labels of each metric in the table of docs/metrics.md."""
    labels = {}
    for names, cell in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|[^|]*\|([^|]*)\|", read("docs", "metrics.md"), re.MULTILINE):
        cell = re.sub(r"\([^)]*\)", "", cell)
        found = {name.strip() for part in cell.split(";") for name in part.partition(":")[0].split(",")} - {""}
        for name in re.findall(r"\w+", names):
            labels[name] = found
    return labels


def scraped(page):
    """The values of each label of each metric: {name: {label: {value}}}."""
    found = {}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", page, re.MULTILINE):
        known = found.setdefault(name, {})
        for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels):
            known.setdefault(label, set()).add(value)
    return found


def selectors_of(query):
    """[(metric, [(label, operator, value)])] of a query, and the labels by which it groups."""
    strings = []

    def keep(found):
        strings.append(found.group(0)[1:-1])
        return f"'s{len(strings) - 1}'"

    bare = re.sub(r'"(?:[^"\\]|\\.)*"', keep, query)
    groups = [label.strip() for _, inner in re.findall(GROUPING, bare) for label in inner.split(",") if label.strip()]
    bare = re.sub(GROUPING, " ", bare)
    bare = re.sub(r"\[[^\]]*\]|\b[\d.]+(e[+-]?\d+|[smhdw])?\b", " ", bare)
    found = []
    for name, matchers in re.findall(r"([a-zA-Z_:][\w:]*)(?!\w)(?!\s*\()\s*(?:\{([^}]*)\})?", bare):
        if name in WORDS or name in ("group_left", "group_right"):
            continue
        found.append((name, [(label, operator, strings[int(index)])
                             for label, operator, index in re.findall(r"(\w+)\s*(=~|!~|!=|=)\s*'s(\d+)'", matchers)]))
    return found, groups


def problems_of(query, known):
    """What of a query no daemon says: known as scraped() and documented() have it."""
    series, table = known
    selectors, groups = selectors_of(query)
    if not selectors:
        yield "no metric"
    all_labels = {"job", "instance"}
    for name, matchers in selectors:
        if name in FOREIGN:
            all_labels |= FOREIGN[name]
            continue
        documented_name = re.sub(r"_(bucket|sum|count)$", "", name)
        if documented_name not in table:
            yield f"{name} is not in docs/metrics.md"
            continue
        values = series.get(name)
        if values is None:
            yield f"{name} is not in a scrape"
        labels = set(values) if values is not None else table[documented_name]
        all_labels |= labels
        for label, _, value in matchers:
            if label in ("job", "instance"):
                continue
            if label not in labels:
                yield f"{name} has no label {label}"
            elif label == "reason":
                for one in re.split(r"\|", value):
                    if f"| `{one}` |" not in read("docs", "errors.md"):
                        yield f"{name}: no reason {one}"
            elif values is not None:
                for one in re.split(r"\|", value):
                    if one not in values[label]:
                        yield f"{name}: {label} is never {one}"
    for label in groups:
        if label not in all_labels:
            yield f"nothing has label {label}"


class Deployed:
    """Two daemons, and a Prometheus that scrapes them as deploy/prometheus/prometheus.yaml says."""

    def __init__(self, home):
        self.home, self.processes = home, []
        self.port = free_port()
        self.peers = {name: free_port() for name in "ab"}
        self.metrics = {name: free_port() for name in "ab"}
        self.environment = dict(os.environ, FERRY_CUDA_LIBRARY=FAKE_CUDA, FERRY_NVML_LIBRARY=FAKE_CUDA,
                                FERRY_NCCL_LIBRARY=FAKE_NCCL, FERRY_FAKE_CUDA=f"devices=2;seed={os.getpid()}")

    def begin(self):
        for index, name in enumerate("ab"):
            nodes = ", ".join(f'{{ name: node-{other}, address: "127.0.0.1:{port}", ids: [{2 * at}, {2 * at + 1}] }}'
                              for at, (other, port) in enumerate(self.peers.items()))
            with open(self.config(name), "w", encoding="utf-8") as file:
                file.write(f"node: {{ name: node-{name}, runtime_dir: {self.directory(name)} }}\n"
                           f"membership: {{ nodes: [{nodes}] }}\npeer: {{ listen: '127.0.0.1:{self.peers[name]}' }}\n"
                           f"devices: {{ host: 1, gpus: [{index}] }}\nmetrics: {{ listen: '127.0.0.1:{self.metrics[name]}' }}\n")
            self.start(name, os.path.join(BIN, "ferryd"), "--config", self.config(name))
        for name in "ab":
            self.ferryctl(name, "health", "--wait", "30s")
        self.begin_prometheus()

    def begin_prometheus(self):
        text = read("deploy", "prometheus", "prometheus.yaml")
        for old, new in ((r"_interval: \d+s", "_interval: 250ms"), (r"- alerts\.yaml", f"- {PROMETHEUS}/alerts.yaml"),
                         (r"targets: .*", "targets: [%s]" % ", ".join(f'"{self.target(name)}"' for name in "ab"))):
            text, count = re.subn(old, new, text)
            assert count, old
        with open(os.path.join(self.home, "prometheus.yaml"), "w", encoding="utf-8") as file:
            file.write(text)
        self.start("prometheus", program("prometheus"), f"--config.file={self.home}/prometheus.yaml",
                   f"--storage.tsdb.path={self.home}/data", f"--web.listen-address=127.0.0.1:{self.port}")
        wait_until("Prometheus is ready", self.ready)
        wait_until("both daemons are scraped", lambda: len(self.ask("up == 1")) == 2)

    def directory(self, name):
        return os.path.join(self.home, name)

    def config(self, name):
        return os.path.join(self.home, name + ".yaml")

    def target(self, name):
        return f"127.0.0.1:{self.metrics[name]}"

    def start(self, name, *command):
        with open(os.path.join(self.home, name + ".log"), "wb") as log:
            self.processes.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log))
        return self.processes[-1]

    def print_logs(self):
        for name in ("a", "b", "prometheus"):
            path = os.path.join(self.home, name + ".log")
            if os.path.exists(path):
                with open(path, encoding="utf-8", errors="replace") as log:
                    print(f"--- {name}\n{log.read()[-3000:]}", file=sys.stderr)

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def ferryctl(self, name, *arguments, status=0):
        return run(os.path.join(BIN, "ferryctl"), "--runtime-dir", self.directory(name), *arguments, status=status,
                   env=self.environment)

    def api(self, path, **parameters):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?" + urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def ask(self, query):
        answer = self.api("query", query=query)
        assert answer["status"] == "success" and not answer.get("warnings"), f"{query}: {answer}"
        return answer["data"]["result"]

    def ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=30):
                return True
        except urllib.error.URLError:
            return False

    def rules(self):
        return [rule for group in self.api("rules", type="alert")["data"]["groups"] for rule in group["rules"]]

    def states(self):
        return {rule["name"]: rule["state"] for rule in self.rules()}

    def page(self, name):
        with urllib.request.urlopen(f"http://{self.target(name)}/metrics", timeout=30) as answer:
            return answer.read().decode()

    def move_bytes(self):
        for devices, route in (((0, 2), "mapped"), ((0, 2), "tcp"), ((1, 3), "nccl")):
            self.ferryctl("a", "bench", "latency", "--peer-runtime-dir", self.directory("b"), "--from", str(devices[0]),
                          "--to", str(devices[1]), "--route", route, "--iterations", "50")
        self.ferryctl("a", "recv", os.path.join(self.home, "never"), "--from", "2", "--key", "never", "--deadline", "100ms",
                      status=7)
        with open(os.path.join(self.home, "in"), "wb") as file:
            file.write(b"x" * 4096)
        self.ferryctl("a", "send", file.name, "--to", "77", status=3)


def setUpModule():
    home = tempfile.mkdtemp()
    unittest.addModuleCleanup(shutil.rmtree, home)
    global deployed
    deployed = Deployed(home)
    unittest.addModuleCleanup(deployed.stop)
    try:
        deployed.begin()
    except AssertionError:
        deployed.print_logs()
        raise


class PromtoolTest(unittest.TestCase):
    def test_rules_and_example_are_good(self):
        run(program("promtool"), "check", "rules", "--lint-fatal", os.path.join(PROMETHEUS, "alerts.yaml"))
        run(program("promtool"), "check", "config", "--lint-fatal", os.path.join(PROMETHEUS, "prometheus.yaml"))

    def test_alerts_fire_when_they_should(self):
        run(program("promtool"), "test", "rules", os.path.join(PROMETHEUS, "alerts_test.yaml"))


class DashboardFileTest(unittest.TestCase):
    def setUp(self):
        self.dashboard = json.loads(read("deploy", "grafana", "ferry.json"))

    def test_panels_have_their_place_and_take_the_variables(self):
        self.assertEqual([one["name"] for one in self.dashboard["templating"]["list"]], ["datasource", "node"])
        panels = self.dashboard["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        taken = set()
        for panel in panels:
            place = panel["gridPos"]
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(place["x"] + place["w"], 24)
            taken |= cells
            for target in panel.get("targets", []):
                self.assertEqual(target["datasource"]["uid"], "${datasource}", panel["title"])
                for selector, matchers in selectors_of(target["expr"])[0]:
                    self.assertIn(("instance", "=~", "$node"), matchers, f"{panel['title']}: {selector}")

    def test_alerts_that_panels_name_exist(self):
        alerts = set(re.findall(r"- alert: (\w+)", read("deploy", "prometheus", "alerts.yaml")))
        named = {name for panel in self.dashboard["panels"] for name in re.findall(r"\bFerry[A-Z]\w+", panel.get("description", ""))}
        self.assertGreater(len(named), 20)
        self.assertLessEqual(named, alerts)


class PrometheusTest(unittest.TestCase):
    """In the order of their names: first what ordinary work gives, last what is broken on purpose."""

    @classmethod
    def setUpClass(cls):
        deployed.move_bytes()
        cls.known = scraped(deployed.page("a") + deployed.page("b")), documented()
        deployed.move_bytes()
        for name in ("a", "b"):
            wait_until("the last transfers are scraped", lambda name=name: deployed.ask(
                f'ferry_sessions_total{{instance="{deployed.target(name)}",result="opened"}} == '
                + re.search(r'ferry_sessions_total\{result="opened"\} (\d+)', deployed.page(name)).group(1)))

    def queries(self):
        dashboard = json.loads(read("deploy", "grafana", "ferry.json"))
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                yield panel["title"], target["expr"]
        for annotation in dashboard["annotations"]["list"]:
            yield annotation["name"], annotation["expr"]

    def test_1_ordinary_work_raises_no_alert(self):
        wait_until("every rule was evaluated", lambda: all(rule["health"] != "unknown" for rule in deployed.rules()))
        rules = deployed.rules()
        self.assertEqual(len(rules), read("deploy", "prometheus", "alerts.yaml").count("- alert: "))
        for rule in rules:
            self.assertEqual((rule["health"], rule["state"], rule.get("lastError", "")), ("ok", "inactive", ""), rule["name"])

    def test_2_rules_ask_for_what_daemons_say(self):
        for rule in deployed.rules():
            self.assertEqual(list(problems_of(rule["query"], self.known)), [], rule["name"])

    def test_2_the_dashboard_asks_for_what_daemons_say(self):
        count = 0
        for title, query in self.queries():
            count += 1
            self.assertEqual(list(problems_of(query, self.known)), [], title)
        self.assertGreater(count, 40)

    def test_2_the_table_of_metrics_has_what_daemons_say(self):
        series, table = self.known
        said = {}
        for name, labels in series.items():
            said.setdefault(re.sub(r"_(bucket|sum|count)$", "", name), set()).update(set(labels) - {"le"})
        self.assertEqual(sorted(said), sorted(table))
        for name, labels in said.items():
            self.assertEqual(labels, table[name], name)

    def test_2_mistakes_in_queries_are_found(self):
        for bad in ("ferry_transfer_total", 'ferry_transfers_total{outcome="ok"}', 'ferry_transfers_total{result="good"}',
                    "sum by (gpu) (ferry_comm_bytes)", 'ferry_transfer_failures_total{reason=~"INTERNAL|TIRED"}',
                    "rate(ferry_fallbacks_total{reason=\"x\"}[5m])", "vector(1)", "sum(ferry_sessions) / ferry_session"):
            self.assertNotEqual(list(problems_of(bad, self.known)), [], bad)

    def test_2_queries_of_the_dashboard_are_answered_with_data(self):
        for title, query in self.queries():
            rows = deployed.ask(query.replace("$node", ".*").replace("$__rate_interval", "1m"))
            names = {name for name, _ in selectors_of(query)[0]}
            if "ALERTS" not in names:
                self.assertTrue(rows, f"{title}: no data: {query}")
                self.assertTrue(any(row["value"][1] != "NaN" for row in rows), f"{title}: {query}: {rows}")

    def test_2_the_variable_node_has_the_daemons(self):
        dashboard = json.loads(read("deploy", "grafana", "ferry.json"))
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", dashboard["templating"]["list"][1]["definition"]).groups()
        answer = deployed.api(f"label/{label}/values", **{"match[]": metric})
        self.assertEqual(sorted(answer["data"]), sorted(deployed.target(name) for name in "ab"))

    def test_3_what_goes_wrong_raises_its_alert(self):
        with open(deployed.config("a"), "a", encoding="utf-8") as file:
            file.write("limits: { session_bites: 1 }\n")
        deployed.ferryctl("a", "reload", "--wait", status=1)
        deployed.ferryctl("b", "drain", "--timeout", "10s")
        raised = {"FerryReloadRefused", "FerryLeftDraining"}
        wait_until("alerts are pending", lambda: {name for name, state in deployed.states().items() if state == "pending"} == raised)
        os.kill(deployed.processes[1].pid, signal.SIGKILL)
        wait_until("the lost daemon is noticed", lambda: deployed.states()["FerryDown"] == "pending")
        self.assertEqual({alert["labels"]["instance"] for rule in deployed.rules() if rule["name"] == "FerryDown"
                          for alert in rule["alerts"]}, {deployed.target("b")})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
