# SPDX-License-Identifier: Apache-2.0
"""Whether what pages and comments name exists: files, functions, members, links; and whether pages are wrapped. For
tools/check_style.py.

A page names a function as `path/file.cc: Name`, so that a reader finds it and this finds that it is gone. What is
between back quotes and begins with a folder of the tree is a path of the tree. Decisions and the changelog tell of the
past: only their links are looked at.
"""

import fnmatch
import os
import re

from check_functions import TOKEN

WIDTH = 120
SOURCES = (".cc", ".h", ".hpp", ".c", ".proto", ".cu", ".cuh")
PAST = ("docs/decisions/", "CHANGELOG.md")
NAMED_FILE = re.compile(r"(?<![\w./<*-])[\w-]+(?:/[\w-]+)*\.(?:md|cc|h|hpp|proto|py)\b(?!\.?\w)")
MEMBER = re.compile(r"(?<![\w:])((?:[A-Z]\w*::)+)(~?\w+)")


def is_past(path):
    return path.startswith(PAST)


class Names:
    """What there is in the tree: `files` are its paths."""

    def __init__(self, files):
        self.files = set(files)
        self.folders = set()
        for path in files:
            while "/" in path:
                path = os.path.dirname(path)
                self.folders.add(path)
        self.base_names = {os.path.basename(path) for path in files}
        self.tops = {path.split("/")[0] for path in self.files if "/" in path and not path.startswith(".")}
        self.texts = {}
        self.types = None  # as of_types says

    def text(self, path):
        if path not in self.texts:
            try:
                with open(path, encoding="utf-8") as file:
                    self.texts[path] = file.read()
            except (OSError, UnicodeDecodeError):
                self.texts[path] = ""
        return self.texts[path]

    def exists(self, path):
        path = path.rstrip("/")
        return path in self.files or path in self.folders

    def fits(self, pattern):
        """Whether there is a file or folder for each form of `a/{b,c}/*.h`."""
        braces = re.search(r"\{([^{}]*)\}", pattern)
        if braces:
            return all(self.fits(pattern[:braces.start()] + one + pattern[braces.end():]) for one in braces[1].split(","))
        if re.search(r"[*?\[]", pattern):
            return any(fnmatch.fnmatch(path, pattern.rstrip("/")) for path in self.files | self.folders)
        return self.exists(pattern)

    def is_path(self, name):
        """Not a socket of a runtime directory, and not a pattern with a word to be filled in."""
        parts = name.strip("/").split("/")
        placeholder = any(part.isupper() and not self.exists(name) for part in parts)
        return "/" in name and parts[0] in self.tops and not name.endswith(".sock") and not placeholder

    def of_types(self):
        """Type of the tree -> the text, without comments, of the sources that declare it or say `Type::`."""
        if self.types is None:
            declared, said = {}, {}
            declaration = re.compile(r"\b(?:class|struct|enum|union|using|concept|message|service)\s+(?:class\s+)?"
                                     r"(?:alignas\s*\([^()]*\)\s*)?(?:\w+::)*([A-Z]\w*)")
            for path in sorted(self.files):
                if path.endswith(SOURCES):
                    code = TOKEN.sub(" ", self.text(path))
                    for name in set(declaration.findall(code)):
                        declared.setdefault(name, []).append(code)
                    for name in set(re.findall(r"\b([A-Z]\w*)::", code)):
                        said.setdefault(name, []).append(code)
            self.types = {name: codes + said.get(name, []) for name, codes in declared.items()}
        return self.types

    def lacks_member(self, types, member):
        """Whether the last type of `A::B` that is of the tree has no such member anywhere."""
        known = [name for name in types if name in self.of_types()]
        word = re.compile(rf"(?<!\w){re.escape(member)}\b")
        return bool(known) and not any(word.search(code) for code in self.of_types()[known[-1]])

    def has_function(self, path, name):
        """Whether a file defines or declares `name`, a function or a type, which may be qualified."""
        text = TOKEN.sub(lambda found: "" if found[0].startswith(("/", "#")) else '""', self.text(path))
        last = name.split("::")[-1]
        if re.search(rf"\b(class|struct|enum|using)\s+(class\s+)?(\w+::)*{re.escape(last)}\b", text):
            return True
        if path.endswith((".h", ".hpp", ".proto")):
            return all(re.search(rf"\b{re.escape(part)}\b", text) for part in name.split("::"))
        # A definition begins where its line does; what is not qualified here may be there.
        return re.search(rf"^(?:\w[^;{{}}=]*?[\s&*:])?{re.escape(name)}\s*\(", text, re.MULTILINE) is not None


def slug(heading):
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def prose_of(lines):
    """(number, line) of a page's lines that are no code."""
    fenced = False
    item = False  # of a list, under which indented lines are prose
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\n")
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if line.strip() and not line.startswith(" "):
            item = False
        item = item or re.match(r" {0,3}([-*]|\d+\.) ", line) is not None
        if not fenced and (item or not line.startswith("    ")):
            yield number, line


def anchors_of(lines):
    return {slug(line.lstrip("#")) for _, line in prose_of(lines) if line.startswith("#")}


def too_long(line):
    """Tables, headings and what has no place to break are as long as they are."""
    return len(line) > WIDTH and not line.startswith(("|", "#")) and " " in line.strip()[:WIDTH].lstrip("-*0123456789. ")


def problems_of_page(path, lines, names):
    """(rule, text) of each problem of a Markdown page."""
    folder = os.path.dirname(path)
    first = lines[0].rstrip("\n") if lines else ""
    if folder and os.path.basename(path) == "README.md" and first != f"# {folder}":
        yield "readme", f"{path}:1: begins with '{first}', not with '# {folder}'"
    long_lines = [number for number, line in prose_of(lines) if too_long(line)]
    if long_lines:
        more = f", and {len(long_lines) - 1} more" if len(long_lines) > 1 else ""
        yield "wrap", f"{path}:{long_lines[0]}: is longer than {WIDTH} columns{more}: tools/check --fix wraps pages"
    text = "\n".join(line for _, line in prose_of(lines))
    spoken = re.sub(r"`[^`]*`", "", text)
    for target in re.findall(r"\[[^\]]*\]\(([^()\s]+)\)", spoken):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        file = os.path.normpath(os.path.join(folder, file)) if file else path
        if not names.exists(file):
            yield "link", f"{path}: links to {target}, which is not there"
        elif anchor and file.endswith(".md") and anchor not in anchors_of(names.text(file).split("\n")):
            yield "link", f"{path}: links to {target}: {file} has no such heading"
    if is_past(path):
        return
    for code in sorted(set(re.findall(r"`([^`]+)`", text))):
        code = re.sub(r"\s+", " ", code)
        place = re.fullmatch(r"([\w./-]+\.(?:cc|h|hpp|c|proto|py)): ([\w:~]+)", code)
        if place:
            if not names.exists(place[1]):
                yield "place", f"{path}: names {code}: there is no such file"
            elif not names.has_function(place[1], place[2]):
                yield "place", f"{path}: names {code}: the file has no such function or type"
        elif re.fullmatch(r"[\w.][\w./{},*-]*/[\w./{},*-]*", code) and names.is_path(code) and not names.fits(code):
            yield "path", f"{path}: names {code}, which is not there"


def comments_of(text):
    """(line, text) of each comment of a C++ or proto file."""
    for found in TOKEN.finditer(text):
        if found[0].startswith(("//", "/*")):
            yield text.count("\n", 0, found.start()) + 1, found[0]


def problems_of_comments(path, lines, names):
    """(rule, text) of what comments of a source name that is not there."""
    folder = os.path.dirname(path)
    for number, comment in comments_of("".join(lines)):
        for name in re.findall(r"(?<![\w./<-])\w[\w.-]*(?:/[\w.-]+)+/?", comment):
            name = name.rstrip("./")
            if names.is_path(name) and not any(names.exists(name + end) for end in ("", ".h", ".cc", ".proto")):
                if not names.exists(os.path.join(folder, name)):
                    yield "path", f"{path}:{number}: a comment names {name}, which is not there"
        for name in NAMED_FILE.findall(comment):
            if os.path.basename(name) not in names.base_names:
                yield "path", f"{path}:{number}: a comment names {name}, and no file is called so"
        for types, member in MEMBER.findall(comment):
            if names.lacks_member(types.rstrip(":").split("::"), member):
                yield "member", f"{path}:{number}: a comment names {types}{member}, which is not there"
