# SPDX-License-Identifier: Apache-2.0
"""For an example with this folder in PYTHONPATH, and for the processes that it starts: what stands in for a framework, by the
module that $FERRY_STAND_IN names, of tests/python or of another folder of PYTHONPATH."""

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Modules:
    """Of pytest's monkeypatch what the stand-ins ask of it."""

    def setitem(self, mapping, name, value):
        mapping[name] = value


if os.environ.get("FERRY_STAND_IN"):
    made = __import__(os.environ["FERRY_STAND_IN"])
    if hasattr(made, "install"):  # else importing it was all
        made.install(Modules())
