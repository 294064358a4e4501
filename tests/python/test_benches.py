# SPDX-License-Identifier: Apache-2.0
"""The scripts of bench/python say by their exit status, as the C++ benches do, that a target is missed."""

import os
import subprocess
import sys

import pytest
from test_pages import ROOT

BENCHES = os.path.join(ROOT, "bench", "python")


@pytest.fixture
def gpu_tensors(monkeypatch):
    monkeypatch.syspath_prepend(BENCHES)
    import gpu_tensors

    yield gpu_tensors
    del sys.modules["gpu_tensors"]


def test_a_row_is_missed_if_it_has_a_target_and_somebody_to_be_compared_with(gpu_tensors):
    row = gpu_tensors.Row
    assert row("a", 9.0, "b", 10.0, 0.95).missed and str(row("a", 9.0, "b", 10.0, 0.95)).endswith("target 0.95, missed")
    assert not row("a", 9.5, "b", 10.0, 0.95).missed and str(row("a", 9.5, "b", 10.0, 0.95)).endswith("target 0.95")
    assert not row("a", 9.0, "b", 0.0, 0.95).missed and not row("a", 9.0, "b", 10.0).missed


def test_the_status_of_both_ends(gpu_tensors):
    assert [gpu_tensors.status_of(ends) for ends in ([0, 0], [8, 0], [8, 8], [8, 1], [0, -9])] == [0, 8, 8, 1, 1]


def test_a_bench_that_misses_a_target_ends_with_8():
    """Of which there is none that a computer could meet."""
    program = "import sys, own_cost as o; o.TARGETS['fire'] = 0.0; sys.argv[1:] = ['--rounds', '1']; sys.exit(o.main())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (BENCHES, os.environ.get("PYTHONPATH"))))}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (8, "") and "a prepared fire" in done.stdout
