#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes function_table.cc: all functions of libferry's C headers, for null_test.cc.

make_table.py NM LIBFERRY OUT HEADER...: for each FERRY_API function its name, its parameters and a way to
call it with arguments of a list. Fails if the library shows other functions than the headers declare.
"""

import os
import re
import subprocess
import sys

FILE = """\
// Written by make_table.py.
#include "tests/client/api/function_table.h"

namespace ferry::testing {

const std::vector<Function>& AllFunctions() {
  static const std::vector<Function>* const all = new std::vector<Function>{
%s  };
  return *all;
}

}  // namespace ferry::testing
"""


def declarations(text):
    """(result, name, [(type, name)]) of each FERRY_API function."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"^#(.*\\\n)*.*$", "", text, flags=re.MULTILINE)
    for declared in re.findall(r"FERRY_API\s+([^;{]*);", text):
        declared = " ".join(declared.split())
        result, name, rest = re.fullmatch(r"(.*?[\s*])(ferry_\w+)\s*\((.*)\)", declared).groups()
        yield result.strip(), name, [parameter(p) for p in split(rest) if p != "void"]


def split(parameters):
    """At the commas that are in no parentheses."""
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(parameters):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(parameters[begin:i].strip())
            begin = i + 1
    return parts + [parameters[begin:].strip()]


def parameter(text):
    """(type, name); of a function's pointer the name stands inside."""
    pointer = re.search(r"\(\*(\w+)\)", text)
    if pointer:
        return text.replace(pointer.group(0), "(*)"), pointer.group(1)
    kind, name = re.fullmatch(r"(.*?[\s*])(\w+)", text).groups()
    return kind.strip(), name


def entry(result, name, parameters):
    listed = ", ".join(f'{{"{kind}", "{called}"}}' for kind, called in parameters)
    call = f"{name}({', '.join(f'a.Get<{kind}>({i})' for i, (kind, _) in enumerate(parameters))})"
    if result == "void":
        call = f"({call}, Nothing{{}})"
    taken = "const Arguments& a" if parameters else "const Arguments&"
    return f'      {{"{name}", {{{listed}}}, []({taken}) {{ return Outcome({call}); }}}},\n'


def main(nm, library, out, headers):
    functions = []
    for header in headers:
        with open(header, encoding="utf-8") as file:
            functions += declarations(file.read())
    declared = {name for _, name, _ in functions}
    shown = declared
    if os.path.getsize(library) > 0:  # else nothing is linked: cmake/aarch64.cmake
        listed = subprocess.run([nm, "-D", "--defined-only", library], check=True, text=True, stdout=subprocess.PIPE)
        shown = {line.split()[-1].split("@")[0] for line in listed.stdout.splitlines()}
    if shown != declared:
        sys.exit(f"only in the library: {sorted(shown - declared)}; only in the headers: {sorted(declared - shown)}")
    with open(out, "w", encoding="utf-8") as file:
        file.write(FILE % "".join(entry(*function) for function in functions))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
