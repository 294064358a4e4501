#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Taste that a program can check: tools/check_style.py FILE..., from the root of the tree, with all of its files.

Exceptions stand in tools/check_allow with their reason; one that excuses nothing is a problem as well. Of what has a
size the reason begins with "at most N", and N never grows: so the list can only shrink.
"""

import os
import re
import sys

import check_classes
import check_functions
import check_names

MAX_LINES = 500
MAX_FUNCTION_LINES = 70
MAX_CLASS_FILES = 2
MAX_METHODS = 40  # that a class declares; check_classes.py says what counts
PRODUCT = ("base/", "device/", "transfer/", "compute/", "daemon/", "client/", "tools/", "bench/", "examples/")
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
    "duration": (lambda f: f.startswith(PRODUCT) and f.endswith(CPP),
                 re.compile(r"\babsl::FormatDuration\b|%[.\d]*[dfg](?:ms|us|ns|s)\b"),
                 "people read \"1.5 s\": DurationText of base/duration.h"),
    "get_bool": (lambda f: f.startswith(PRODUCT) and f.endswith(CPP),
                 re.compile(r"\bget_bool\("),
                 "protozero's reads a byte before it looks whether there is one: get_uint64() != 0"),
    "field": (lambda f: f.startswith("daemon/") and f.endswith(CPP),
              re.compile(r"\bReason::kFieldInvalid\b"),
              "FieldError or OfField of base/field_error.h say which field"),
    "todo": (lambda f: f.endswith(CODE) and not f.startswith(("tools/check_style.py", "tests/tools/")),
             re.compile(r"\b(TODO|FIXME|XXX)\b"), "do it, or file an issue"),
}


# Who may call a class: "Home: ..." in the first comment of its header, or in the comment of the class itself, which
# counts for this class alone. Nothing is to be checked where the home is another class's, which checks, or is any thread.
HOME = re.compile(r"\bHome: ([^.]*)")
NO_HOME = re.compile(r"its owner|any thread|each part|as |the thread that calls")
CLASS = re.compile(r"((?:^//[^\n]*\n)*)(?:^template[^\n]*\n)?^class (\w+)(?: final)?(?: : [^;{]*)?\s*\{(.*?)^\};",
                   re.MULTILINE | re.DOTALL)
CHECKS = re.compile(r"\bHomeChecker\b|\bIsCurrent\(\)")


def prose_of(comment):
    return re.sub(r"\n// ?", " ", comment)


def checking_classes(path):
    """The classes that ask for their home in the .cc file beside a header."""
    source = path[:-2] + ".cc"
    if not os.path.exists(source):
        return set()
    with open(source, encoding="utf-8") as file:
        text = file.read()
    lines = text.split("\n")
    return {name.split("::")[0] for name, first, last in check_functions.functions_of(text)
            if "::" in name and CHECKS.search("\n".join(lines[first - 1:last]))}


def home_problems(path, text):
    """What is wrong with the homes that a header names: a class has a home and a check for it, or neither."""
    comment = prose_of(re.match(r"(//[^\n]*\n)*", text)[0])
    if re.search(r"\bhome\b", HOME.sub("", comment), re.IGNORECASE):
        yield f"{path}: speaks of a home without saying \"Home: ...\", which names who may call"
    of_file = HOME.search(comment)
    checking = checking_classes(path)
    for match in CLASS.finditer(text):
        before, name, body = match.groups()
        home = HOME.search(prose_of(before)) or of_file
        checks = name in checking or CHECKS.search(body) is not None
        if home is None and checks:
            yield f"{path}: {name} checks its home, which no \"Home: ...\" names"
        elif home is None or NO_HOME.match(home[1]) or re.search(r"\)(?: const)? = 0;", body):
            continue  # or an interface: who implements it checks
        elif not checks:
            yield f"{path}: names the home of {name}, which has no HomeChecker (base/home.h)"


def load_allowed():
    """(rule, file, or what of it as FILE:NAME) -> reason."""
    allowed = {}
    with open("tools/check_allow", encoding="utf-8") as file:
        for line in file:
            match = re.fullmatch(r"(\w+) +(\S+) +# (.+)\n", line)
            if match:
                allowed[match.group(1), match.group(2)] = match.group(3)
            elif line.strip() and not line.startswith("#"):
                sys.exit(f"tools/check_allow: not 'RULE FILE  # reason': {line}")
    return allowed


def excuses(reason, size):
    """Whether a reason excuses what has this size (None: it has none)."""
    most = re.match(r"at most (\d+)\b", reason)
    return size is None or (most is not None and size <= int(most[1]))


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
    if path.startswith(LIBRARIES) and path.endswith(".h"):
        for text in home_problems(path, "".join(lines)):
            yield "home", text
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


def sizes_of(sources):
    """(rule, what, size, text) of functions that are too long and of classes that are too large, of the product alone.

    A class is what `FOLDER:NAME` names, with the top folder; X::Impl is X.
    """
    places = {}  # (top folder, class) -> files
    methods = {}  # (top folder, class) -> how many there are, and where the first one is
    for path, text in sources:
        for name, first, last in check_functions.functions_of(text):
            size = last - first + 1
            if size > MAX_FUNCTION_LINES:
                yield ("function", f"{path}:{name}", size,
                       f"{path}:{first}: {name} has {size} lines, more than {MAX_FUNCTION_LINES}")
            if path.endswith(".cc") and "::" in name:
                owner = check_classes.owner_of(name.rpartition("::")[0])
                places.setdefault((path.split("/")[0], owner), set()).add(path)
        for name, line, _ in check_classes.methods_of(text):
            key = path.split("/")[0], check_classes.owner_of(name)
            count, place = methods.get(key, (0, f"{path}:{line}"))
            methods[key] = count + 1, place
    for (top, name), paths in sorted(places.items()):
        if len(paths) > MAX_CLASS_FILES:
            yield ("class", f"{top}:{name}", len(paths),
                   f"{top}: {name} is in {len(paths)} .cc files, more than {MAX_CLASS_FILES}: {', '.join(sorted(paths))}")
    for (top, name), (count, place) in sorted(methods.items()):
        if count > MAX_METHODS:
            yield ("methods", f"{top}:{name}", count,
                   f"{place}: {name} declares {count} methods, more than {MAX_METHODS}: take it apart along its data")


def all_problems(paths):
    """(rule, what it is of, size or None, text) of each problem of the tree."""
    names = check_names.Names(paths)
    sources = []
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.readlines()
        except UnicodeDecodeError:
            continue
        found = list(problems_of(path, lines))
        if path.endswith(".md"):
            found += check_names.problems_of_page(path, lines, names)
        elif path.endswith(check_names.SOURCES):
            found += check_names.problems_of_comments(path, lines, names)
        for rule, text in found:
            yield rule, path, None, text
        if path.startswith(PRODUCT) and path.endswith(CPP):
            sources.append((path, "".join(lines)))
    yield from sizes_of(sources)


def main(paths):
    allowed = load_allowed()
    used = set()
    found = []
    for rule, what, size, text in all_problems(paths):
        reason = allowed.get((rule, what))
        if reason is not None:
            used.add((rule, what))
        if reason is None or not excuses(reason, size):
            found.append(f"{text} [{rule}]")
    for rule, what in sorted(set(allowed) - used):
        found.append(f"tools/check_allow: excuses nothing: {rule} {what}")
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
