# SPDX-License-Identifier: Apache-2.0
"""The right-hand sides of the table of a page for newcomers, each run as it stands there: page_rows.py PAGE.

Needs no pytest, since it runs in whichever interpreter has PyTorch or JAX. $A and $B are the client directories of node-a and
node-b, of two host devices each. Prints how many spans of code were run; what a cell says beside its code is for people.
"""

import ast
import asyncio
import contextlib
import inspect
import os
import re
import subprocess
import sys

import ferry

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
# What is no code: names that must be there, and files.
NAME = re.compile(r"[A-Z]\w+Error|\$[A-Z_]+|examples/\S+\.py|None")


def page_text():
    with open(os.path.join(ROOT, "docs", "python.md"), encoding="utf-8") as file:
        return file.read()


class Row:
    """One row: `left` and the spans of code of its right-hand side, in their order."""

    def __init__(self, left, right):
        self.left, self.spans = left, re.findall(r"`([^`]+)`", right)

    def run(self, **names):
        """The next span that is code, with these names in it. What an expression is; what an assignment assigns is put into
        `names` too, for the next one."""
        self.check_names()
        text = self.spans.pop(0)
        code = compile(text, text, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
        names = {"ferry": ferry, **names}
        last = code.body[-1]
        if isinstance(last, ast.Expr):
            code.body[-1] = ast.copy_location(ast.Assign([ast.Name("_", ast.Store())], last.value), last)
            ast.fix_missing_locations(code)
        target = code.body[-1].targets[0].id if isinstance(code.body[-1], ast.Assign) else None
        made = eval(compile(code, text, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.isawaitable(made):
            asyncio.run(made)
        Row.ran += 1
        return names.get(target)

    ran = 0

    def check_names(self):
        """Spans at the front that are names and files: they exist."""
        while self.spans and NAME.fullmatch(self.spans[0]):
            name = self.spans.pop(0)
            if name.endswith("Error"):
                assert hasattr(ferry, name), name
            elif name.startswith("$"):
                assert name in page_text(), name
            elif name != "None":
                assert os.path.exists(os.path.join(ROOT, name)), name

    def end(self):
        self.check_names()
        assert not self.spans, f"{self.left}: nobody has run {self.spans}"


def rows_of(page):
    with open(os.path.join(ROOT, "docs", f"from-{page}.md"), encoding="utf-8") as file:
        rows = [line.strip()[2:-2].split(" | ") for line in file if line.startswith("| ")]
    assert all(len(row) == 2 for row in rows), [row for row in rows if len(row) != 2]
    return [Row(*row) for row in rows[1:]]


class Both:
    """Sessions at both nodes, and the other end of what a row posts."""

    def __init__(self):
        self.here, self.there = ferry.Session(os.environ["A"]), ferry.Session(os.environ["B"])

    @contextlib.contextmanager
    def taken(self, like, key="step-7", to="node-b/host0"):
        """What is sent within comes to `to`: yields a list that has it in the end."""
        got = []
        frm = "node-a/host0"
        future = self.there.recv(like, frm=frm, key=key, device=to)
        yield got
        got.append(future.result(60))

    @contextlib.contextmanager
    def given(self, tensor, key="step-7"):
        """What is received within, at node-b's host0, comes from node-a's."""
        sent = self.here.send(tensor, to="node-b/host0", key=key)
        yield
        sent.result(60)

    def dies(self):
        """The error of a receive from a device whose last member of a domain has been killed."""
        program = (
            "import ferry, os, sys\nsession = ferry.Session(os.environ['B'], domain='dies')\nsession.join('dies')\n"
            "print('there', flush=True)\nsys.stdin.read()"
        )
        with (
            ferry.Session(os.environ["A"], domain="dies") as session,
            subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
        ):
            other.stdout.readline()
            future = session.recv(shape=4, frm="node-b/host0", key="dies")
            other.kill()
            return future.exception(60)


def main():
    import page_rows_of

    page = sys.argv[1]
    rows, both = rows_of(page), Both()
    checks = page_rows_of.CHECKS[page]
    assert len(rows) == len(checks), f"{len(rows)} rows, {len(checks)} checks"
    for row, check in zip(rows, checks, strict=True):
        check(row, both)
        row.end()
    print(f"{len(rows)} rows, {Row.ran} run")
    both.here.close()
    both.there.close()


if __name__ == "__main__":
    sys.modules["page_rows"] = sys.modules["__main__"]
    main()
