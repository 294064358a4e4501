# SPDX-License-Identifier: Apache-2.0
"""One daemon for all tests of a framework; processes that they start find it in $FERRY_CLIENT_DIR."""

import os

import pytest

import ferry


@pytest.fixture(scope="session")
def node():
    with ferry.local_node(host_devices=2) as node:
        os.environ.update(node.environment)
        yield node
