#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each line of a page that installs Debian packages is one that tools/packages-test runs: of README.md those under "As a
service", of docs/operating.md its commands. That they work is what packages-test sees."""

import glob
import os
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "packages"))

import readme_lines  # noqa: E402

PAGE = """# Ferry
    apt install elsewhere
## As a service

    ./tools/packages
    apt install ./build/*.deb
    systemctl start ferryd

Who has them needs only `apt install
./*.deb`, not `ferryd`.

## More
    apt install more
"""


def run(page, text):
    """The lines of `text` that are run, with how often a page may say them."""
    if page == "README.md":
        return readme_lines.installing(readme_lines.clone(text)) + readme_lines.installing(readme_lines.folder(text))
    if page == os.path.join("docs", "operating.md"):
        return readme_lines.installing(line for line in text.split("\n") if line.startswith("    $ "))
    return []


class InstallsTest(unittest.TestCase):
    def test_each_line_that_installs_is_run(self):
        for path in [os.path.join(ROOT, "README.md"), *sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")))]:
            page = os.path.relpath(path, ROOT)
            with self.subTest(page):
                text = readme_lines.read(page)
                said = len(readme_lines.INSTALL.findall(text))
                self.assertEqual(said, len(run(page, text)), "another line installs packages than those that packages-test runs")
                self.assertTrue(said or page not in ("README.md", "docs/operating.md"))

    def test_they_are_taken_as_they_stand(self):
        self.assertEqual(readme_lines.clone(PAGE), ["./tools/packages", "apt install ./build/*.deb", "systemctl start ferryd"])
        self.assertEqual(readme_lines.folder(PAGE), ["apt install ./*.deb", "systemctl start ferryd"])
        self.assertEqual(len(readme_lines.INSTALL.findall(PAGE)), 4)

    def test_every_way_to_install_is_known(self):
        for line in ("apt install ./a.deb", "apt-get install -y ./a.deb", "apt-get -y install a", "sudo dpkg -i a.deb", "dpkg --install a"):
            self.assertTrue(readme_lines.INSTALL.search(line), line)
        for line in ("apt-get purge -y a", "apt says so", "cmake --install build"):
            self.assertFalse(readme_lines.INSTALL.search(line), line)


if __name__ == "__main__":
    unittest.main()
