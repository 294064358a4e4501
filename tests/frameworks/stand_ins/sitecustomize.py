# SPDX-License-Identifier: Apache-2.0
"""For an example with this folder in PYTHONPATH, and for the processes that it starts: what there is of $FERRY_STAND_IN."""

import os

if os.environ.get("FERRY_STAND_IN"):
    __import__(f"{os.environ['FERRY_STAND_IN']}_parts")
