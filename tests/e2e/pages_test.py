#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pages as a newcomer follows them: all commands of a page in one shell, one after the other, in the order of the page.
What the page says that they print is what they print. Of README.md it is the ten lines, on their two daemons the programs
of it and of docs/c.md, and the two hosts, which are two daemons here: in a network namespace that has the addresses of both
where one may be made, else on loopback.

pages_test.py BIN: the folder of ferryd and ferryctl. --update writes into docs/first-program.md what its commands print.

In docs/first-program.md a command is an indented line that begins with "$ "; its output is the indented lines after it.
Elsewhere all indented lines are commands, for whoever copies them, but for a block behind a line that ends with "prints":
that is the output of the block before. Where the output is different each time, as of `bench`, or has the time in it, only
the shape is compared: numbers are. Daemons, files and ports are the test's own.
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
C_PAGE = os.path.join(ROOT, "docs", "c.md")
UPDATE = "--update" in sys.argv
BIN = os.path.abspath([argument for argument in sys.argv[1:] if not argument.startswith("--")][0])
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


def section_of(page, heading):
    """The lines between this heading and the next one of its kind."""
    rest = page[page.index(heading) + 1:]
    return list(itertools.takewhile(lambda line: not line.startswith("## "), rest))


def blocks_of(page):
    """Its indented blocks in order: (the lines, whether they are what the block before prints)."""
    found, fenced, last = [], False, ""
    for line in page:
        fenced ^= line.startswith("```")
        if fenced or not line.strip():
            if found and not line:
                found[-1][2] = True
            continue
        if not line.startswith("    "):
            last = line
        elif found and not found[-1][2] and not last:
            found[-1][0].append(line[4:])
        else:
            found.append([[line[4:]], last.endswith("prints"), False])
            last = ""
    return [(lines, printed) for lines, printed, _ in found]


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read().split("\n")


def network_of_its_own():
    """What a command begins with that shall have one, or nothing where none can be had."""
    prefix = ["unshare", "--net"]
    have = shutil.which("ip") and shutil.which("unshare")
    return prefix if have and subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0 else []


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def shape(text):
    """What stays the same of it from run to run: not numbers, units, spaces or who multiplies."""
    return [re.findall(r"[A-Z][A-Z/]+", line)[:6] for line in text[:1]]


class PagesTest(unittest.TestCase):
    def run_all(self, commands, home, prefix=()):
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
        done = subprocess.run([*prefix, "bash", "-c", "\n".join(script)], cwd=ROOT, env=environment, stdout=subprocess.PIPE,
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

    def run_lines(self, lines, home, prefix=()):
        """Runs them in one shell; each must end well. What each printed."""
        outputs = self.run_all([(-1, line, []) for line in lines], home, prefix)
        for line, (output, status) in zip(lines, outputs):
            self.assertEqual(status, 0, f"{line}: {output}")
        return [output for output, _ in outputs]

    def ten_lines(self):
        """Of README.md: the ten, and how it ends their daemons."""
        (ten, _), (end, _) = blocks_of(section_of(lines_of(README), "## File to file in ten lines"))
        self.assertEqual(len(ten), 10)
        self.assertEqual(end, ["kill $A $B && wait $A $B"])
        return ten, end

    def test_the_ten_lines_of_the_readme(self):
        ten, end = self.ten_lines()
        with tempfile.TemporaryDirectory() as home:
            outputs = self.run_lines([*ten, *end, "wait $A", "wait $B"], home)
            self.assertEqual(os.path.getsize(os.path.join(home, "out.bin")), 100 << 20)
        self.assertIn("both files are the same", outputs[8])
        self.assertTrue(any(line.split()[:3:2] == ["node-b", "up"] for line in outputs[9]), outputs[9])

    def follow_blocks(self, lines, before):
        """Runs the blocks of a page's lines behind `before`: they print what the page says, no more and no less."""
        blocks = blocks_of(lines)
        commands = [command for block, printed in blocks if not printed for command in block]
        with tempfile.TemporaryDirectory() as home:
            outputs = self.run_lines(before + commands, home)[len(before):]
        said = iter(outputs)
        for (block, printed), (after, is_printed) in zip(blocks, blocks[1:] + [([], False)]):
            if not printed:
                output = [line for _ in block for line in next(said)]
                self.assertEqual(output, after if is_printed else [], block)
        return commands

    def daemons(self):
        """Of the ten lines those that start the daemons, whose logs are not the programs' output."""
        ten, _ = self.ten_lines()
        lines = [line.replace(" & ", " 2> /dev/null & ") for line in ten if re.match(r"(export PATH|ferryd|ferryctl .* health)", line)]
        self.assertEqual(len(lines), 5)
        return lines

    def test_programs_of_the_readme(self):
        section = section_of(lines_of(README), "## In a program")
        commands = self.follow_blocks(section, self.daemons())
        self.assertEqual(len(commands), 7)

    def test_programs_of_the_page_on_c(self):
        (install, _), *_ = blocks_of(section_of(lines_of(README), "## In a program"))
        commands = self.follow_blocks(lines_of(C_PAGE), self.daemons() + install[:2])
        self.assertEqual(len(commands), 7)

    def test_two_hosts_of_the_readme(self):
        """Both on this host, each with a folder for /etc/ferry and a daemon of this user instead of the unit's."""
        (secret, _), (configure, _), (transfer, _) = blocks_of(section_of(lines_of(README), "## Two hosts"))
        text = "\n".join(configure)
        start = "systemctl restart ferryd && ferryctl health --wait 30s"
        for wanted in ("install -o ferry -g ferry -m 0400 ", "node: { name: node-a }", 'listen: "192.0.2.1:7411"', start):
            self.assertEqual(text.count(wanted), 1, wanted)
        self.assertEqual([line.split("# on ")[1] for line in transfer], ["node-b", "node-a"])
        with tempfile.TemporaryDirectory() as home:
            lines = ["export PATH=$PWD/build/release/bin:$PATH", f"cd {home}", *secret]
            network = network_of_its_own()
            if network:
                lines += ["ip link set lo up", "ip address add 192.0.2.1/32 dev lo", "ip address add 192.0.2.2/32 dev lo"]
            for name, number in (("a", 1), ("b", 2)):
                here = os.path.join(home, name)
                os.mkdir(here)
                with open(os.path.join(here, "ferryd.yaml"), "w", encoding="utf-8") as file:
                    file.write(f"node: {{ runtime_dir: {here}/run }}\n")
                own = text.replace("node: { name: node-a }", f"node: {{ name: node-{name} }}")
                own = own.replace('listen: "192.0.2.1', f'listen: "192.0.2.{number}')
                own = own.replace("-o ferry -g ferry ", "").replace("/etc/ferry", here).replace(
                    start, f"ferryd --config {here}/ferryd.yaml 2> {here}/log &\nferryctl --runtime-dir {here}/run health --wait 30s")
                if not network:
                    own = own.replace("192.0.2.1:7411", "127.0.0.1:7411").replace("192.0.2.2:7411", "127.0.0.1:7412")
                lines.append(f"set -e\n{own}\nset +e")
            there, here = (line.replace("ferryctl ", f"ferryctl --runtime-dir {home}/{line[-1]}/run ") for line in transfer)
            lines += [there.replace(" # on", " & R=$! # on"), here, "wait $R && cmp /etc/hosts /tmp/hosts"]
            lines = [line.replace("/tmp/hosts", home + "/hosts") for line in lines]
            lines += [f"ferryctl --runtime-dir {home}/{name}/run status" for name in "ab"]
            outputs = self.run_lines(lines, home, network)
        for output, other in zip(outputs[-2:], ("node-b", "node-a")):
            self.assertTrue(any(line.split()[:3:2] == [other, "up"] for line in output), output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
