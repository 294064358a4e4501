# SPDX-License-Identifier: Apache-2.0
"""A test that is skipped without being on the list fails the run, and the last line says what was skipped."""

import os
import subprocess
import sys

import pytest

FOLDER = os.path.dirname(os.path.abspath(__file__))


@pytest.mark.parametrize(("listed", "required"), [(True, ""), (True, "PyTorch"), (False, ""), (True, "PyTorch JAX")])
def test_a_skip_is_on_the_list_or_fails(tmp_path, listed, required):
    (tmp_path / "SKIPS").write_text(r"test_pages\.test_an_example\[jax.*\] # only where JAX is" if listed else "")
    (tmp_path / "junit.xml").write_text(
        '<testsuites><testsuite><testcase classname="tests.python.test_pages" name="test_an_example[jax_arrays.py]">'
        '<skipped message="there is no jax"/></testcase>'
        '<testcase classname="tests.python.test_pages" name="test_other"/></testsuite></testsuites>'
    )
    command = [sys.executable, os.path.join(FOLDER, "skips.py"), tmp_path / "SKIPS", tmp_path / "junit.xml"]
    environment = {**os.environ, "FERRY_REQUIRED": required}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    listed = listed and "JAX" not in required
    assert done.returncode == (not listed)
    reason = "only where JAX is" if listed else "NOT LISTED"
    assert done.stdout == f"tests/python: 1 passed, 1 skipped; 1: {reason}\n"
    assert listed or "test_pages.test_an_example[jax_arrays.py]: there is no jax" in done.stderr
