#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every #include of the tree against the layers: tools/check_layers.py [ROOT].

The two tables below are the layers; docs/architecture.md shows the arrows to people, each folder's README.md its row. A
folder that has no row of its own belongs to the nearest folder above it that has one.
"""

import os
import re
import sys

# folder: whose headers it may include (itself goes without saying; "*" is every folder of the tree).
FOLDERS = {
    "proto": [],
    "base": [],
    "device": ["base"],
    "device/host": ["base", "device"],
    "device/cuda": ["base", "device"],
    "transfer": ["base", "device", "transfer/clique", "transfer/rules"],
    "transfer/clique": ["base", "device", "transfer"],
    "transfer/rules": ["base", "device", "transfer", "transfer/clique"],
    "transfer/local": ["base", "device", "device/host", "transfer", "transfer/mapped"],
    "transfer/mapped": ["base", "device", "device/host", "transfer", "transfer/local"],
    "transfer/staging": ["base", "device", "transfer"],
    "transfer/tcp": ["base", "device", "transfer", "transfer/staging"],
    "transfer/ucx": ["base", "device", "device/host", "transfer", "transfer/staging"],
    "transfer/nccl": ["base", "device", "device/cuda", "transfer", "transfer/clique"],
    "compute": ["base", "device"],
    "compute/program": ["base", "compute"],
    "compute/passes": ["base", "compute", "compute/program"],
    "compute/plan": ["base", "compute", "compute/program", "compute/passes"],
    "compute/host": ["base", "device", "device/host", "compute", "compute/program", "compute/passes",
                     "compute/plan"],
    "compute/cuda": ["base", "device", "device/cuda", "compute", "compute/program", "compute/passes",
                     "compute/plan"],
    "compute/cuda/compile": ["base", "compute", "compute/cuda"],
    "compute/cuda/run": ["base", "device", "device/cuda", "compute", "compute/program", "compute/passes",
                         "compute/plan", "compute/cuda", "compute/cuda/compile"],
    "daemon/config": ["base", "transfer"],
    "daemon": ["base", "device", "device/host", "device/cuda", "transfer", "transfer/local",
               "transfer/mapped", "transfer/staging", "transfer/tcp", "transfer/ucx", "transfer/nccl",
               "compute", "compute/program", "compute/passes", "compute/plan", "compute/host",
               "compute/cuda", "compute/cuda/compile", "compute/cuda/run", "daemon/config", "daemon/peer",
               "daemon/session", "daemon/job", "daemon/rpc"],
    "daemon/peer": ["base", "device", "transfer", "transfer/mapped", "transfer/tcp", "transfer/ucx", "daemon",
                    "daemon/session"],
    "daemon/session": ["base", "device", "device/host", "transfer", "daemon"],
    "daemon/job": ["base", "device", "device/cuda", "transfer", "compute", "compute/program", "compute/passes",
                   "compute/plan", "compute/host", "compute/cuda", "compute/cuda/compile", "compute/cuda/run",
                   "daemon", "daemon/session"],
    "daemon/rpc": ["base", "device", "device/host", "device/cuda", "transfer", "transfer/local",
                   "transfer/mapped", "transfer/staging", "transfer/tcp", "transfer/ucx",
                   "transfer/nccl", "compute", "compute/program", "compute/passes", "compute/plan",
                   "compute/host", "compute/cuda", "daemon/config", "daemon/peer", "daemon/session", "daemon/job", "daemon"],
    "client/include": [],
    "client": ["client/include"],
    "examples": ["client/include"],
    "tools": ["client/include"],
    # A program's text is checked, and tried, where it is written, without a daemon: these are pure.
    "tools/ferryctl": ["client/include", "base", "compute", "compute/program", "compute/passes",
                       "compute/plan", "compute/host", "compute/cuda", "compute/cuda/compile"],
    "tests": ["*"],
    "bench": ["*"],
}

# Headers that more may include than their folder's row says: they need nothing but the C library, and
# daemon and client share them.
SHARED_HEADERS = {
    "proto/ferry/v1/timeline_layout.h": ["device", "daemon", "daemon/rpc", "client", "tests", "bench"],
    "device/huge_pages.h": ["client"],
    "base/limit_text.h": ["client"],
    "base/thread_limit_text.h": ["client"],
    "base/thread_room.h": ["client"],
}

# Headers of a class's insides: which files, tests too, may include them, as a pattern of their paths.
PRIVATE_HEADERS = {
    # Who else knows a half knows its id, or sees it as a row of EngineView.
    "transfer/posted.h": r"transfer/(rules/)?\w+\.(h|cc)",
    "transfer/engine_state.h": r"transfer/engine\w*\.cc",
}

# Other people's headers: pattern, and the folders that may include them ("*" is everybody but the public
# headers). The first row that fits decides; what fits none is refused, so that a new library gets a row.
LIBRARIES = [
    (r".*\.pb\.h|google/protobuf/.*", ["daemon/rpc", "tools/ferryctl", "tests", "bench"]),
    (r"grpc/.*|grpcpp/.*", ["daemon/rpc", "client", "tools/ferryctl", "tests", "bench"]),
    (r"(ucp|uct|ucs)/.*", ["transfer/ucx", "tests", "bench"]),
    (r"nccl\.h", ["transfer/nccl"]),
    (r"(cuda|cublas|nvml|nvrtc|nvtx)[A-Za-z_0-9]*\.h", ["client", "device/cuda", "transfer/nccl", "compute/cuda",
                                                      "tests", "bench"]),
    (r"yaml-cpp/.*", ["daemon", "daemon/config", "tests"]),
    (r"prometheus/.*", ["daemon", "daemon/rpc", "tests"]),
    (r"(spdlog|fmt)/.*", ["base", "tests"]),
    (r"nvtx3/.*", ["base", "tests"]),
    (r"CLI/.*", ["daemon", "tools/ferryctl", "bench", "tests"]),
    (r"nlohmann/.*", ["daemon", "daemon/rpc", "tools/ferryctl", "bench", "tests"]),
    (r"openssl/.*", ["base", "compute/cuda", "compute/cuda/compile", "compute/program", "tools/ferryctl", "tests", "bench"]),
    (r"hwy/.*", ["compute/host", "tests"]),
    (r"dnnl\.hpp|omp\.h", ["compute/host", "bench"]),
    (r"protozero/.*", ["client", "daemon/rpc", "tests", "bench"]),
    (r"(gtest|gmock)/.*", ["tests"]),
    (r"benchmark/.*", ["bench"]),
    (r"absl/.*", ["*"]),
    (r"(sys|linux|arpa|netinet|net|asm|bits)/[a-z_0-9]+\.h", ["*", "client/include"]),
    (r"[a-z_0-9]+(\.h)?", ["*", "client/include"]),  # the C and C++ libraries
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def row_of(path):
    """The row of FOLDERS that a file or folder of the tree belongs to; None if there is none."""
    folder = os.path.dirname(path)
    while folder:
        if folder in FOLDERS:
            return folder
        folder = os.path.dirname(folder)
    return None


def sources(root):
    for top in sorted({row.split("/")[0] for row in FOLDERS}):
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(files):
                if name.endswith((".h", ".hpp", ".cc", ".c", ".cu")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def resolve(root, path, included):
    """The file of the tree that an include means, or None if it is another people's header."""
    for candidate in (included, os.path.join("client/include", included),
                      os.path.normpath(os.path.join(os.path.dirname(path), included))):
        if os.path.isfile(os.path.join(root, candidate)):
            return candidate
    top = included.split("/")[0]
    tops = {row.split("/")[0] for row in FOLDERS}
    # One of ours that is not there: the compiler will say so; its folder counts all the same.
    return included if "/" in included and top in tops and not included.endswith(".pb.h") else None


def judge(root, path, included):
    """What is wrong with `path` including `included`; None if nothing is."""
    row = row_of(path)
    ours = resolve(root, path, included)
    if ours is not None:
        if ours in PRIVATE_HEADERS and not re.fullmatch(PRIVATE_HEADERS[ours], path):
            return f"only {PRIVATE_HEADERS[ours]} may"
        target = row_of(ours)
        allowed = FOLDERS[row]
        if target == row or "*" in allowed or target in allowed:
            return None
        if row in SHARED_HEADERS.get(ours, []):
            return None
        return f"{row}/ may use {', '.join([row] + allowed)} only"
    for pattern, folders in LIBRARIES:
        if re.fullmatch(pattern, included):
            if row in folders or ("*" in folders and row != "client/include"):
                return None
            return f"only {', '.join(folders)} may"
    return "no row of LIBRARIES in tools/check_layers.py knows it"


def check(root):
    problems = []
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                wrong = judge(root, path, match.group(2))
                if wrong:
                    problems.append(f"{path}:{number}: includes {match.group(2)}: {wrong}")
    return problems


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
