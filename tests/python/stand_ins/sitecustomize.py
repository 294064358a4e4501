# SPDX-License-Identifier: Apache-2.0
"""For an example with this folder in PYTHONPATH, and for the processes that it starts: stand-ins of torch and of the framework
that $FERRY_STAND_IN names."""

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Modules:
    """Of pytest's monkeypatch what the stand-ins ask of it."""

    def setitem(self, mapping, name, value):
        mapping[name] = value


if os.environ.get("FERRY_STAND_IN"):
    __import__(f"fake_{os.environ['FERRY_STAND_IN']}").install(Modules())
