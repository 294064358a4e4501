#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/released makes the programs of the commit that the changelog names, once."""

import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PROGRAMS = ("ferryd", "ferryctl", "ferry_test_client")
# Builds programs that print the text of the tree's file "version".
CMAKE = """#!/bin/sh
echo "cmake $*" >> "$CALLS"
[ "$1" = --build ] || exit 0
mkdir -p build/release/bin
for name in ferryd ferryctl ferry_test_client; do
  printf '#!/bin/sh\\necho %s\\n' "$(cat version)" > build/release/bin/$name
  chmod +x build/release/bin/$name
done
"""


class ReleasedTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="released.")
        self.addCleanup(shutil.rmtree, self.root)
        self.calls = os.path.join(self.root, "calls")
        self.repository = os.path.join(self.root, "ferry")
        os.makedirs(os.path.join(self.repository, "tools"))
        self.git("init", "--quiet")
        shutil.copy(os.path.join(ROOT, "tools", "released"), os.path.join(self.repository, "tools"))
        self.write("tools/setup", "#!/bin/sh\n", executable=True)
        self.write(".gitignore", ".cache\nbuild\n")
        path = os.path.join(self.root, "path", "cmake")
        os.makedirs(os.path.dirname(path))
        with open(path, "w", encoding="utf-8") as file:
            file.write(CMAKE)
        os.chmod(path, 0o755)

    def git(self, *arguments):
        return subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", self.repository, *arguments],
                              stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    def write(self, path, text, executable=False):
        path = os.path.join(self.repository, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        if executable:
            os.chmod(path, 0o755)

    def commit(self, version, changelog):
        """A commit with this text in "version", which the programs print."""
        self.write("version", version)
        self.write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n" + changelog)
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", version)
        return self.git("rev-parse", "HEAD")

    def released(self, *arguments):
        """Its exit status, the folder that it names, and what else it says."""
        environment = dict(os.environ, CALLS=self.calls, PATH=os.path.join(self.root, "path") + ":" + os.environ["PATH"])
        done = subprocess.run([os.path.join(self.repository, "tools", "released"), *arguments], env=environment,
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.strip(), done.stderr

    def builds(self):
        if not os.path.exists(self.calls):
            return 0
        with open(self.calls, encoding="utf-8") as file:
            return sum(line.startswith("cmake --build") for line in file)

    def printed(self, folder):
        return [subprocess.run([os.path.join(folder, name)], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
                for name in PROGRAMS]

    def test_the_commit_of_the_changelog_is_built_once(self):
        first = self.commit("one", "")
        self.commit("two", f"## [0.2.0] - 2026-01-02 (commit `{first[:12]}`)\n\n## [0.1.0] - 2026-01-01 (tag `v0.1.0`)\n")
        for _ in range(2):
            status, folder, _ = self.released()
            self.assertEqual(status, 0)
            self.assertEqual(folder, os.path.join(self.repository, ".cache/released/0.2.0/build/release/bin"))
            self.assertEqual(self.printed(folder), ["one"] * 3)
        self.assertEqual(self.builds(), 1)
        # The changelog names another commit: that one's programs are wanted.
        second = self.commit("three", f"## [0.2.0] - 2026-01-02 (commit `{self.git('rev-parse', 'HEAD')}`)\n")
        self.assertEqual(self.printed(self.released("0.2.0")[1]), ["two"] * 3)
        self.assertEqual((self.builds(), self.git("rev-parse", "HEAD")), (2, second))

    def test_a_place_that_is_not_filled_in_means_the_tag(self):
        self.commit("one", "## [0.2.0] - 2026-01-02 (commit `COMMIT`)\n")
        status, folder, said = self.released()
        self.assertEqual((status, folder), (77, ""))
        self.assertIn("0.2.0 has no commit yet", said)
        self.git("tag", "v0.2.0")
        self.commit("two", "## [0.2.0] - 2026-01-02 (commit `COMMIT`)\n")
        status, folder, _ = self.released()
        self.assertEqual((status, self.printed(folder)), (0, ["one"] * 3))

    def test_programs_of_other_hands_are_taken(self):
        self.commit("one", "## [0.2.0] - 2026-01-02 (tag `v0.2.0`)\n")
        for name in PROGRAMS:
            self.assertEqual(self.released()[0], 77)
            self.write(".cache/released/0.2.0/build/release/bin/" + name, "#!/bin/sh\necho mine\n", executable=True)
        status, folder, _ = self.released()
        self.assertEqual((status, self.printed(folder), self.builds()), (0, ["mine"] * 3, 0))

    def test_an_unknown_version_is_an_error(self):
        self.commit("one", "## [10.2.0] - 2026-01-02 (tag `v10.2.0`)\n")
        status, _, said = self.released("0.2.0")
        self.assertEqual(status, 1)
        self.assertIn("CHANGELOG.md names no release 0.2.0", said)
        self.assertEqual(self.released("--gone")[0], 2)


if __name__ == "__main__":
    unittest.main()
