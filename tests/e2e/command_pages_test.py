#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Completion and manual pages say what the programs' own help says.

command_pages_test.py DIRECTORY: where ferryctl and ferryd are. bash is asked for completions as it asks the function
itself; zsh and fish check the syntax of theirs where they are installed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

FERRYCTL, FERRYD = (os.path.join(sys.argv[1], name) for name in ("ferryctl", "ferryd"))


def run(*command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                          check=False, **more)
    assert done.returncode == 0, f"{command}: {done.stdout}"
    return done.stdout


def in_help(*command):
    """The commands and the options that the help of a command shows."""
    text = run(*command, "--help")
    commands = re.findall(r"^  (\w[\w-]*) ", text.partition("\nSubcommands:\n")[2], re.MULTILINE)
    options = text.partition("\nOptions:\n")[2].partition("\nSubcommands:\n")[0]
    return commands, re.findall(r"^  (?:-\w,)?(--[\w-]+)", options, re.MULTILINE)


class CommandPagesTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def script(self, shell):
        path = os.path.join(self.directory.name, shell)
        with open(path, "w", encoding="utf-8") as file:
            file.write(run(FERRYCTL, "completion", shell))
        return path

    def complete(self, *words):
        """What bash offers after these words, of which the last is begun."""
        ask = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ferryctl; printf "%s\\n" "${COMPREPLY[@]}"'
        return run("bash", "-c", ask, "-", self.bash, *words, cwd=self.directory.name).split()

    def test_bash_offers_every_command_and_option_of_the_help(self):
        self.bash = self.script("bash")
        commands, options = in_help(FERRYCTL)
        self.assertGreater(len(commands), 10)
        self.assertGreater(len(options), 3)
        self.assertEqual(sorted(self.complete("ferryctl", "")), sorted(commands))
        for option in options:
            self.assertIn(option, self.complete("ferryctl", "--"))
        for command in commands:
            below, own = in_help(FERRYCTL, command)
            offered = self.complete("ferryctl", command, "--")
            for option in own:
                self.assertIn(option, offered, command)
            if below:
                self.assertEqual(sorted(self.complete("ferryctl", command, "")), sorted(below))

    def test_bash_offers_what_begins_so(self):
        self.bash = self.script("bash")
        self.assertEqual(self.complete("ferryctl", "und"), ["undrain"])
        self.assertEqual(self.complete("ferryctl", "--json", "reload", "--w"), ["--wait"])
        self.assertEqual(self.complete("ferryctl", "--runtime-dir", "/x", "rel"), ["reload"])
        with open(os.path.join(self.directory.name, "model.safetensors"), "w", encoding="utf-8"):
            self.assertEqual(self.complete("ferryctl", "send", "mod"), ["model.safetensors"])

    def test_scripts_are_the_shells_own(self):
        for shell in ("bash", "zsh", "fish"):
            path = self.script(shell)
            if shutil.which(shell):
                run(shell, "-n", path)
        commands, _ = in_help(FERRYCTL)
        for shell, pattern in (("zsh", "'{}:"), ("fish", " -a {} ")):
            with open(self.script(shell), encoding="utf-8") as file:
                text = file.read()
            for command in commands:
                self.assertIn(pattern.format(command), text, shell)

    def test_an_unknown_shell_is_refused(self):
        done = subprocess.run([FERRYCTL, "completion", "tcsh"], stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("bash", done.stderr)

    def test_manual_pages_have_every_command_and_option_and_no_warning(self):
        for name, command in (("ferryctl.1", [FERRYCTL, "manual"]), ("ferryd.8", [FERRYD, "--print-manual"])):
            path = os.path.join(self.directory.name, name)
            page = run(*command)
            with open(path, "w", encoding="utf-8") as file:
                file.write(page)
            plain = page.replace("\\-", "-")
            commands, options = in_help(command[0])
            for option in options:
                self.assertRegex(plain, rf"\\fB(-\w, )?{option}\\fR")
            for sub in commands:
                self.assertIn(f'.SS "ferryctl {sub}"', plain)
            if shutil.which("groff"):
                done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", path], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True, timeout=60, check=False)
                self.assertEqual(done.stderr, "")
                self.assertIn("NAME", re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
