#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/runbook.md has a paragraph for each alert, and names only commands, settings, reasons and log events that exist.

runbook_test.py BIN: the folder of ferryctl.
"""

import functools
import os
import re
import subprocess
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
FERRYCTL = os.path.join(sys.argv[1], "ferryctl")


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def split_alerts(text):
    """The text of each alert's rule, by its name."""
    parts = re.split(r"^ +- alert: (\w+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


ALERTS = split_alerts(read("deploy", "prometheus", "alerts.yaml"))
RUNBOOK = read("docs", "runbook.md")
SPANS = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", RUNBOOK)]


@functools.lru_cache(None)
def help_of(*path):
    done = subprocess.run([FERRYCTL, *path, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60, check=False)
    return done.stdout if done.returncode == 0 else None


def problem_of(command):
    """What is wrong with a command line of ferryctl, or None."""
    path, words = (), command.split()[1:]
    actions = None
    for word in words:
        text = help_of(*path)
        below = re.findall(r"^  (\w[\w-]*) ", text.partition("\nSubcommands:\n")[2], re.MULTILINE)
        if word.startswith("-"):
            if not re.search(rf"^ +(-\w,)?{re.escape(word)}(?![\w-])", text + help_of(), re.MULTILINE):
                return f"no option {word}"
        elif below and not word.isupper():
            if word not in below:
                return f"no command {word}"
            path += (word,)
            actions = re.search(r"\{([\w,]+)\}", help_of(*path).partition("\nPositionals:\n")[2].partition("\n\n")[0])
        elif actions and word.islower():
            if word not in actions.group(1).split(","):
                return f"{word} is none of {actions.group(1)}"
            actions = None
    return None if path else "no command"


class RunbookTest(unittest.TestCase):
    def test_each_alert_has_a_paragraph_to_which_it_leads(self):
        parts = re.split(r"^### (\w+)$", RUNBOOK, flags=re.MULTILINE)
        paragraphs = dict(zip(parts[1::2], parts[2::2]))
        self.assertGreater(len(ALERTS), 20)
        self.assertEqual(sorted(paragraphs), sorted(ALERTS))
        for name, rule in ALERTS.items():
            self.assertGreater(len(paragraphs[name].split()), 30, name)
            self.assertIn(f"runbook_url: file:///usr/share/doc/ferryd/runbook.md#{name.lower()}\n", rule)

    def test_each_alert_has_all_that_an_alert_should(self):
        for name, rule in ALERTS.items():
            for pattern in (r"for: \d+[mh]\n", r"labels: \{ severity: (critical|warning) \}\n", r'summary: "', r'description: "'):
                self.assertEqual(len(re.findall(r"\n +" + pattern, rule)), 1, f"{name}: {pattern}")

    def test_each_alert_has_cases_of_firing_and_of_not_firing(self):
        cases = read("deploy", "prometheus", "alerts_test.yaml")
        for name in ALERTS:
            self.assertRegex(cases, rf"alertname: {name}\n +exp_alerts:\n +- exp_labels")
            self.assertRegex(cases, rf"eval_time: \w+, alertname: {name} \}}")

    def test_other_alerts_that_are_named_exist(self):
        for name in re.findall(r"\bFerry[A-Z]\w+", RUNBOOK):
            self.assertIn(name, ALERTS)

    def test_commands_of_ferryctl_exist(self):
        commands = [span for span in SPANS if span.startswith("ferryctl ")]
        self.assertGreater(len(commands), 30)
        for command in commands:
            self.assertIsNone(problem_of(command), command)

    def test_the_check_of_commands_finds_mistakes(self):
        for bad in ("ferryctl trnasfers", "ferryctl sessions open 3", "ferryctl drain --until 3s", "ferryctl flight fly",
                    "ferryctl", "ferryctl --runtime DIR status", "ferryctl comms abort A B --att 3"):
            self.assertIsNotNone(problem_of(bad), bad)

    def test_settings_reasons_and_events_exist(self):
        settings = set(re.findall(r"^\| `([a-z_.]+)` \|", read("docs", "configuration.md"), re.MULTILINE))
        reasons = set(re.findall(r"^\| `([A-Z_]+)` \|", read("docs", "errors.md"), re.MULTILINE))
        events = set()
        for folder, _, files in (entry for top in ("base", "daemon", "device", "transfer", "compute")
                                 for entry in os.walk(os.path.join(ROOT, top))):
            for name in files:
                if name.endswith((".cc", ".h")):
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        events.update(re.findall(r'"([a-z_]+\.[a-z_]+)"', file.read()))
        found = 0
        for span in SPANS:
            if re.fullmatch(r"[a-z]+(\.[a-z_]+)+", span) and not span.endswith((".yaml", ".json")):
                found += 1
                self.assertIn(span, settings | events)
            elif re.fullmatch(r"[A-Z][A-Z_]{4,}", span) and span not in ("NCCL_SOCKET_IFNAME",):
                found += 1
                self.assertIn(span, reasons)
        self.assertGreater(found, 40)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
