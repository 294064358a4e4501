#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pages as a newcomer follows them: all commands of a page in one shell, one after the other, in the order of the page.
What the page says that they print is what they print. Of README.md it is the ten lines, and the programs on the two daemons
of these.

pages_test.py BIN: the folder of ferryd and ferryctl. --update writes into the pages what they print.

A command is an indented line that begins with "$ "; its output is the indented lines after it. Where the output is
different each time, as of `bench`, or has the time in it, only the shape is compared: numbers are. Daemons, files and
ports are the test's own.
"""

import itertools
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
FIRST_PROGRAM = os.path.join(ROOT, "docs", "first-program.md")
README = os.path.join(ROOT, "README.md")
UPDATE = "--update" in sys.argv
BIN = [argument for argument in sys.argv[1:] if not argument.startswith("--")][0]
VARYING = re.compile(r"program bench|program list")


def commands_of(page):
    """(line number, command, lines of output) of each."""
    found = []
    for number, line in enumerate(page):
        if line.startswith("    $ "):
            found.append((number, line[6:], []))
        elif found and number == found[-1][0] + len(found[-1][2]) + 1:
            after = page[number + 1] if number + 1 < len(page) else ""
            goes_on = not line and found[-1][2] and after.startswith("    ") and not after.startswith("    $ ")
            if line.startswith("    ") or goes_on:
                found[-1][2].append(line[4:])
    return found


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read().split("\n")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def shape(text):
    """What stays the same of it from run to run: not numbers, units, spaces or who multiplies."""
    return [re.findall(r"[A-Z][A-Z/]+", line)[:6] for line in text[:1]]


class PagesTest(unittest.TestCase):
    def run_all(self, commands, home):
        examples = os.path.join(home, "two-nodes")
        shutil.copytree(os.path.join(ROOT, "examples", "two-nodes"), examples)
        renamed = {"/tmp/ferry-": home + "/ferry-", "/tmp/first": home + "/first", "examples/two-nodes": examples,
                   "/tmp/in.bin": home + "/in.bin", "/tmp/out.bin": home + "/out.bin",
                   "$PWD/build/release/bin": BIN, "build/release": os.path.dirname(BIN),
                   "7411": free_port(), "7412": free_port()}

        names = re.compile("|".join(re.escape(name) for name in renamed))

        def own(text):
            return names.sub(lambda found: renamed[found.group()], text)

        for name in os.listdir(examples):
            path = os.path.join(examples, name)
            with open(path, encoding="utf-8") as file:
                text = own(file.read())
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        script = ["trap 'kill $(jobs -p) 2> /dev/null; wait' EXIT"]
        for index, (_, command, _) in enumerate(commands):
            script += [f"echo; echo '=== {index}'", own(command), "status=$?; echo; echo \"--- $status\""]
        environment = dict(os.environ, HOME=home)
        environment.pop("LD_LIBRARY_PATH", None)
        environment.pop("PKG_CONFIG_PATH", None)
        done = subprocess.run(["bash", "-c", "\n".join(script)], cwd=ROOT, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=150, check=False)
        parts = re.split(r"\n=== \d+\n", "\n" + done.stdout)[1:]
        self.assertEqual(len(parts), len(commands), done.stdout)
        outputs = []
        for part in parts:
            output, status = part.split("\n--- ")
            for name, here in renamed.items():
                if name not in ("$PWD/build/release/bin", "7411", "7412"):
                    output = output.replace(here, name)
            outputs.append((output.rstrip("\n").split("\n") if output.strip() else [], int(status.split()[0])))
        return outputs

    def follow(self, path, commands, before=()):
        """Runs `commands` of the page, behind the lines `before`, whose output is not looked at."""
        page = lines_of(path)
        before = [(-1, line, []) for line in before]
        with tempfile.TemporaryDirectory() as home:
            outputs = self.run_all(before + commands, home)
        for (_, command, _), (output, status) in zip(before, outputs):
            self.assertEqual(status, 0, f"{command}: {output}")
        for (number, command, said), (output, status) in reversed(list(zip(commands, outputs[len(before):]))):
            if UPDATE:
                page[number + 1:number + 1 + len(said)] = ["    " + line if line else "" for line in output]
                continue
            with self.subTest(command):
                self.assertEqual(status, 1 if "# refused" in command else 0, "\n".join(output))
                if VARYING.search(command):
                    self.assertEqual(shape(output), shape(said))
                else:
                    self.assertEqual(output, said)
        if UPDATE:
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(page))

    def test_first_program(self):
        commands = commands_of(lines_of(FIRST_PROGRAM))
        self.assertGreater(len(commands), 10)
        self.follow(FIRST_PROGRAM, commands)

    def test_the_ten_lines_of_the_readme(self):
        page = lines_of(README)
        lines = itertools.dropwhile(lambda line: line != "## File to file in ten lines", page)
        lines = itertools.dropwhile(lambda line: not line.startswith("    "), lines)
        ten = [line[4:] for line in itertools.takewhile(lambda line: line.startswith("    "), lines)]
        self.assertEqual(len(ten), 10)
        # Between them only what remembers the daemons; at the end how both have ended.
        lines = [line for one in ten for line in ([one, "daemons+=($!)"] if one.startswith("ferryd ") else [one])]
        lines += ["wait ${daemons[0]}", "wait ${daemons[1]}"]
        with tempfile.TemporaryDirectory() as home:
            outputs = self.run_all([(-1, line, []) for line in lines], home)
            self.assertEqual(os.path.getsize(os.path.join(home, "out.bin")), 100 << 20)
        for line, (output, status) in zip(lines, outputs):
            self.assertEqual(status, 0, f"{line}: {output}")
        status_of_a = outputs[[" cmp " in line for line in lines].index(True)][0]
        self.assertTrue(any("node-a" in line for line in status_of_a), status_of_a)

    def test_programs_of_the_readme(self):
        page = lines_of(README)
        begin, end = page.index("## In a program"), page.index("## Words")
        commands = [command for command in commands_of(page) if begin < command[0] < end]
        self.assertGreater(len(commands), 10)
        ten = page[page.index("## File to file in ten lines"):begin]
        daemons = [re.sub("&$", "2> /dev/null &", line[4:]) for line in ten if re.match(r"    (export PATH|ferryd|ferryctl .* health)", line)]
        self.assertEqual(len(daemons), 5)
        self.follow(README, commands, daemons)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
