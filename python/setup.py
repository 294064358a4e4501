# SPDX-License-Identifier: Apache-2.0
"""The tag of a wheel with a library for one platform and code for every CPython: tools/wheel says which."""

import os

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class Platform(Distribution):
    def has_ext_modules(self) -> bool:  # what is inside is not for every platform
        return True


class Tag(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", os.environ["FERRY_WHEEL_PLATFORM"]


setup(distclass=Platform, cmdclass={"bdist_wheel": Tag})
