# SPDX-License-Identifier: Apache-2.0
"""ferryd and the libraries it was built with, for ``ferry.local_node()`` and ``python -m ferry.node``."""

import os

__all__ = ["program"]


def program() -> str:
    """The path of ferryd."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "_dist", "bin", "ferryd")
