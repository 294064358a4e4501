#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wraps Markdown pages at 120 columns, in place: tools/wrap_pages.py FILE... (tools/check --fix calls it).

Only paragraphs and list items with a line that is longer are filled anew: what somebody has broken well stays. Tables,
headings, code and line breaks that are meant (two spaces) are left alone, and a code span is not broken.
"""

import re
import sys

from check_names import WIDTH

ITEM = re.compile(r"(\s*)(?:[-*]|\d+\.) +")
LONGEST_SPAN = 90  # a longer code span is broken where it has a space
# What would begin a list, a heading, a table or a quotation if it began a line.
MARKER = re.compile(r"[-*+]|\d+\.|#+|\|.*|>")


def words_of(text):
    """What may stand on a line of its own."""
    spans = []

    def hold(match):
        if len(match[0]) > LONGEST_SPAN:
            return match[0]
        spans.append(match[0])
        return f"\0{len(spans) - 1}\1"

    words = []
    for word in re.sub(r"`[^`]+`", hold, " ".join(text.split())).split():
        if words and MARKER.fullmatch(word):
            words[-1] += " " + word
        else:
            words.append(word)
    return [re.sub("\0(\\d+)\1", lambda match: spans[int(match[1])], word) for word in words]


def fill(words, first, others):
    """Lines of the words: the first one begins with `first`, the others with `others`."""
    lines, line, empty = [], first, True
    for word in words:
        if not empty and len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line, empty = others, True
        line += word if empty else " " + word
        empty = False
    return lines + [line]


def indent_of(line):
    return len(line) - len(line.lstrip())


def wrapped(text):
    lines = text.split("\n")
    out = []
    fenced = False
    item = None  # how deep the text of the list item stands, inside one
    at = 0
    while at < len(lines):
        line = lines[at]
        begins = ITEM.match(line)
        indent = indent_of(line)
        if line.strip() and not begins and indent == 0 and not fenced:
            item = None
        if line.lstrip().startswith("```"):
            fenced = not fenced
        in_item = item is not None and item - 1 <= indent < item + 4
        code = indent >= 4 and not in_item and not (begins and item is not None)
        if fenced or code or not line.strip() or line.lstrip().startswith(("```", "|", "#", "<")):
            out.append(line)
            at += 1
            continue
        if begins:
            item = begins.end()
        first, others = (begins[0], " " * item) if begins else (" " * indent,) * 2
        end = at + 1
        while end < len(lines) and lines[end].strip() and indent_of(lines[end]) == len(others) \
                and not ITEM.match(lines[end]) and not lines[end].lstrip().startswith(("```", "|", "#")):
            end += 1
        block = lines[at:end]
        if any(len(one) > WIDTH for one in block) and not any(one.endswith("  ") for one in block):
            block = fill(words_of("\n".join(block)[len(first):]), first, others)
        out += block
        at = end
    return "\n".join(out)


def main(paths):
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if wrapped(text) != text:
            with open(path, "w", encoding="utf-8") as file:
                file.write(wrapped(text))


if __name__ == "__main__":
    main(sys.argv[1:])
