#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Taste that a program can check: tools/check_style.py FILE..., from the root of the tree, with all of its files.

Exceptions stand in tools/check_allow with their reason; one that excuses nothing is a problem as well.
"""

import os
import re
import sys

import check_names

MAX_LINES = 500
LIBRARIES = ("base/", "device/", "transfer/", "compute/", "daemon/", "client/")
CPP = (".cc", ".h", ".hpp", ".c")
CODE = CPP + (".py", ".proto", ".cmake", "CMakeLists.txt")

# rule: (where it holds, what must not be there, what to do instead). Comments do not count, but for todo.
WORDS = {
    "sleep": (lambda f: f.startswith("tests/") and f.endswith(CPP),
              re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|SleepFor)\b|(?<![\w.])sleep\("),
              "wait for the event"),
    "cout": (lambda f: f.startswith(LIBRARIES) and f.endswith(CPP),
             re.compile(r"std::(cout|cerr)\b"), "log, or return a status"),
    "shared_ptr": (lambda f: f.startswith(LIBRARIES + ("tools/",)) and f.endswith(CPP),
                   re.compile(r"\b(shared_ptr|make_shared)\b"), "give it one owner"),
    "throw": (lambda f: f.startswith(LIBRARIES + ("tools/",)) and f.endswith(CPP),
              re.compile(r"\bthrow\b"), "return a status"),
    "todo": (lambda f: f.endswith(CODE) and not f.startswith(("tools/check_style.py", "tests/tools/")),
             re.compile(r"\b(TODO|FIXME|XXX)\b"), "do it, or file an issue"),
}


def load_allowed():
    """(rule, file) -> reason."""
    allowed = {}
    with open("tools/check_allow", encoding="utf-8") as file:
        for line in file:
            match = re.fullmatch(r"(\w+) +(\S+) +# (.+)\n", line)
            if match:
                allowed[match.group(1), match.group(2)] = match.group(3)
            elif line.strip() and not line.startswith("#"):
                sys.exit(f"tools/check_allow: not 'RULE FILE  # reason': {line}")
    return allowed


def is_script(path, first_line):
    return "." not in os.path.basename(path) and first_line.startswith("#!")


def problems_of(path, lines):
    """(rule, text) of each problem of one file."""
    first = lines[0] if lines else ""
    others = path.startswith(("proto/google/", "proto/grpc/"))  # with their own licence headers
    if not others and (path.endswith(CODE) or is_script(path, first)):
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
            yield "spdx", f"{path}:1: has no SPDX-License-Identifier: Apache-2.0 in its first lines"
    if path.endswith(CPP) and len(lines) > MAX_LINES:
        yield "length", f"{path}: has {len(lines)} lines, more than {MAX_LINES}: one file, one thing"
    if path.endswith((".h", ".hpp")) and "#pragma once\n" not in lines:
        yield "once", f"{path}: has no #pragma once"
    for rule, (holds, pattern, instead) in WORDS.items():
        if not holds(path):
            continue
        hits = []
        for number, line in enumerate(lines, 1):
            found = pattern.search(line if rule == "todo" else re.sub(r"//.*", "", line))
            if found:
                hits.append((number, found.group(0)))
        if hits:
            more = f", and {len(hits) - 1} more" if len(hits) > 1 else ""
            yield rule, f"{path}:{hits[0][0]}: {hits[0][1]}{more}: {instead}"
    if path.startswith("tests/") and path.endswith("_test.cc"):
        cmake = os.path.join(os.path.dirname(path), "CMakeLists.txt")
        text = ""
        if os.path.exists(cmake):
            with open(cmake, encoding="utf-8") as file:
                text = file.read()
        if not re.search(r"\bferry_tests\(", text):
            yield "dead", f"{path}: no ferry_tests() in {cmake}: the test is never run"
    elif path.endswith("_test.cc"):
        yield "dead", f"{path}: tests live under tests/"


def all_problems(paths):
    """(rule, what it is of, text) of each problem of the tree."""
    names = check_names.Names(paths)
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.readlines()
        except UnicodeDecodeError:
            continue
        found = list(problems_of(path, lines))
        if path.endswith(".md"):
            found += check_names.problems_of_page(path, lines, names)
        for rule, text in found:
            yield rule, path, text


def main():
    allowed = load_allowed()
    used = set()
    found = []
    for rule, what, text in all_problems(sys.argv[1:]):
        if (rule, what) in allowed:
            used.add((rule, what))
        else:
            found.append(f"{text} [{rule}]")
    for rule, what in sorted(set(allowed) - used):
        found.append(f"tools/check_allow: excuses nothing: {rule} {what}")
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
