# SPDX-License-Identifier: Apache-2.0
"""How many methods C++ classes declare, as far as the layout of the tree's code tells: for tools/check_style.py.

What counts: each member function that the class's body declares or defines, public or not, static and virtual ones too,
and each overload of a name. Not counted: constructors, destructors, operators, what is `= default` or `= delete`,
friends, lambdas and members that are called (std::function), and what a base class declares. A struct is a class. A
class within another counts for itself, but for X::Impl, which is X: X has the methods of both.
"""

import re

from check_functions import LEAD, bare, opens_of

CLASS = re.compile(r"^(?:template\s*<.*>\s*)?(?:class|struct|union)\s+(?:alignas\s*\([^()]*\)\s*)?(?:\[\[.*?\]\]\s*)*"
                   r"((?:\w+::)*\w+)", re.DOTALL)
NO_METHOD = re.compile(r"^(?:using|typedef|friend|static_assert|enum|class|struct|union|namespace|return)\b")
MACRO = re.compile(r"[A-Z][A-Z0-9_]*")


def owner_of(name):
    """The class that a class counts for: X::Impl is X."""
    return name.removesuffix("::Impl")


def without_brackets(text, left, right):
    """The text without what stands between such brackets, themselves included."""
    kept, depth = [], 0
    for letter in text:
        depth += letter == left
        if depth == 0:
            kept.append(letter)
        depth -= letter == right and depth > 0
    return "".join(kept)


def method_of(head, name):
    """The method that a declaration in the body of class `name` declares; None if it declares something else."""
    head = LEAD.sub("", head).strip()
    if re.search(r"\boperator\b|=\s*(default|delete)\s*$", head):
        return None
    head = re.sub(r"\[\[.*?\]\]", "", head)
    head = re.sub(r"->|<=|>=|<<|>>(?=\s*=)", " ", head)
    head = without_brackets(head, "<", ">")
    head = re.sub(r"\b(?:alignas|decltype|explicit|noexcept|requires)\s*\([^()]*\)", "", head).strip()
    head = re.sub(r"^template\s*", "", head)
    if NO_METHOD.match(head) or "(" not in head:
        return None
    before = head[:head.index("(")]
    if "=" in before:
        return None  # a member with its value
    found = re.fullmatch(r"(.*?[\s*&])(~?\w+)\s*", before, re.DOTALL)
    if found is None or not found[1].strip():
        return None  # a constructor, or a macro
    method = found[2]
    kinds = re.sub(r"\b(?:inline|constexpr|explicit|static|virtual)\b", "", found[1]).strip()
    if not kinds or method.startswith("~") or method == name.split("::")[-1] or MACRO.fullmatch(method) and "_" in method:
        return None
    if re.match(r"\(\s*[*&]", head[head.index("("):]):
        return None  # a pointer to a function
    return method


def methods_of(text):
    """(class as X::Y, line, method) of each method that a class's body declares, lines from 1."""
    found = []
    scopes = []  # of each open brace: what it opens, the class it opens, or None
    values = 0
    head, begin, line = "", 1, 1

    def add(words):
        inside = scopes[-1][1] if scopes else None
        method = inside and method_of(words, inside)
        if method:
            found.append((inside, begin + LEAD.match(words)[0].count("\n"), method))

    for part in re.findall(r"[{};]|[^{};]+", bare(text)):
        if part == "{":
            kind = "block" if values else opens_of(head)
            name = None
            if kind == "scope":
                opened = CLASS.match(LEAD.sub("", head).strip())
                outer = scopes[-1][1] if scopes else None
                if opened:
                    name = f"{outer}::{opened[1]}" if outer else opened[1]
            elif kind == "function":
                add(head)
            scopes.append((kind, name, head))
            values += kind != "scope"
            if kind != "value":
                head = ""
        elif part == "}":
            kind, _, before = scopes.pop() if scopes else ("scope", None, "")
            values -= kind != "scope"
            head = before + "{}" if kind == "value" else ""
        elif not values:
            if part == ";":
                add(head)
                head = ""
            elif part.strip():
                if not head:
                    begin = line
                head += part
        line += part.count("\n")
    return found
