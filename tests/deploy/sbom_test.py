#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bill of materials of a package names what is bundled, each with version and locator, and is the same each time."""

import json
import os
import subprocess
import unittest

SBOM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy/debian/sbom")


def sbom(lines):
    return subprocess.run([SBOM, "ferryd", "0.1.0", "1700000000"], input=lines, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60, check=False)


class SbomTest(unittest.TestCase):
    def test_what_is_bundled_is_in_it(self):
        done = sbom("linked libc6\nbeside libc6\npypi libucx-cu13 1.22.0\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        # What SPDX 2.3 requires of a document and of a package.
        for field in ("spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo"):
            self.assertTrue(document[field], field)
        self.assertEqual(document["creationInfo"]["created"], "2023-11-14T22:13:20Z")
        packages = {package["SPDXID"]: package for package in document["packages"]}
        self.assertEqual(len(packages), 4, "identifiers are unique")
        for identifier, package in packages.items():
            self.assertRegex(identifier, r"^SPDXRef-[A-Za-z0-9.-]+$")
            for field in ("name", "versionInfo", "downloadLocation", "licenseConcluded", "licenseDeclared", "copyrightText"):
                self.assertTrue(package[field], field)
        version = subprocess.run(["dpkg-query", "-W", "-f=${Version}\n", "libc6"], stdout=subprocess.PIPE, text=True,
                                 check=True).stdout.splitlines()[0]
        self.assertEqual(packages["SPDXRef-linked-libc6"]["versionInfo"], version)
        self.assertEqual(packages["SPDXRef-pypi-libucx-cu13"]["externalRefs"][0]["referenceLocator"], "pkg:pypi/libucx-cu13@1.22.0")
        related = {(relation["relationshipType"], relation["relatedSpdxElement"]) for relation in document["relationships"]}
        self.assertEqual(related, {("DESCRIBES", "SPDXRef-package"), ("STATIC_LINK", "SPDXRef-linked-libc6"),
                                   ("CONTAINS", "SPDXRef-beside-libc6"), ("CONTAINS", "SPDXRef-pypi-libucx-cu13")})

    def test_the_same_is_bundled_whatever_the_order(self):
        self.assertEqual(sbom("linked libc6\nlinked dpkg\n").stdout, sbom("linked dpkg\nlinked libc6\nlinked dpkg\n").stdout)

    def test_a_package_that_is_not_installed_is_a_failure(self):
        self.assertNotEqual(sbom("linked no-such-package\n").returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
