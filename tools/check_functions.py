# SPDX-License-Identifier: Apache-2.0
"""Where C++ functions begin and end, as far as the layout of the tree's code tells: for tools/check_style.py.

No compiler: braces are counted outside of comments, strings and preprocessor lines. What is at namespace or class scope
and has parameters before its brace is a function.
"""

import re

TOKEN = re.compile(r"""
    //[^\n]*
  | /\*.*?\*/
  | R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"
  | "(?:\\.|[^"\\\n])*"
  | (?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'
  | ^[ \t]*\#(?:\\\n|[^\n])*
""", re.VERBOSE | re.DOTALL | re.MULTILINE)

LEAD = re.compile(r"^\s*(?:(?:public|private|protected)\s*:(?!:)\s*)*")  # before a declaration


def bare(text):
    """The text without comments, strings and preprocessor lines; lines stay where they are."""
    def blank(match):
        return '""' * match[0].startswith(('"', "R")) + "\n" * match[0].count("\n")
    return TOKEN.sub(blank, text)


def opens_of(head):
    """What a brace opens after `head`, at namespace or class scope: "scope", "function" or "value"."""
    head = LEAD.sub("", head)
    if re.match(r"\s*(inline\s+)?namespace\b|\s*extern\s*\"\"\s*$", head):
        return "scope"
    if re.match(r"\s*(template\s*<.*?>\s*)?(typedef\s+)?(class|struct|union|enum)\b[^()=]*(alignas\s*\([^()]*\)[^()=]*)?$",
                head, re.DOTALL):
        return "scope"
    depth = 0
    parameters = False
    for index, letter in enumerate(head):
        if letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
            parameters = parameters or letter == ")"
        elif letter == "=" and depth == 0 and not re.search(r"operator\s*[=!<>+*/|&^-]*$", head[:index]):
            return "value"
    if depth > 0 or not parameters:
        return "value"
    # Behind a constructor's colon a brace belongs to a member, unless something closes before it.
    if re.search(r"\)\s*(noexcept\s*)?:(?!:)", head) and re.search(r"[\w>]\s*$", head):
        return "value"
    return "function"


def name_of(head):
    head = LEAD.sub("", head)
    test = re.search(r"\b(?:TEST|TEST_F|TEST_P|TYPED_TEST)\s*\(\s*(\w+)\s*,\s*(\w+)", head)
    if test:
        return f"{test[1]}.{test[2]}"
    before = head[:head.index("(")]
    while re.search(r"<[^<>]*>", before):
        before = re.sub(r"<[^<>]*>", "", before)
    found = re.search(r"([\w:~]*operator\s*\S+|[\w:~]+)\s*$", before)
    return re.sub(r"\s", "", found[1]) if found else "?"


def functions_of(text):
    """(name as it is written, first line, last line) of each function, from 1."""
    found = []
    scopes = []  # of each open brace: what it opens, the head before it, the line where the head begins
    values = 0   # functions, blocks and values among them
    head, begin = "", 0
    line = 1
    for part in re.findall(r"[{};]|[^{};]+", bare(text)):
        if part == "{":
            kind = "block" if values else opens_of(head)
            scopes.append((kind, head, begin))
            values += kind != "scope"
            if kind != "value":
                head = ""
        elif part == "}":
            kind, before, start = scopes.pop() if scopes else ("scope", "", line)
            values -= kind != "scope"
            if kind == "function":
                found.append((name_of(before), start + LEAD.match(before)[0].count("\n"), line))
            head, begin = (before + "{}", start) if kind == "value" else ("", line)
        elif not values:
            if part == ";":
                head = ""
            elif part.strip():
                if not head:
                    begin = line
                head += part
        line += part.count("\n")
    return found
