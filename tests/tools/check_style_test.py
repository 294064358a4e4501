#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_style.py finds what it forbids, where it forbids it."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
CHECK = os.path.join(ROOT, "tools", "check_style.py")
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(CHECK))

import check_style  # noqa: E402
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class CheckStyleTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="style.")
        self.addCleanup(shutil.rmtree, self.root)
        self.write("tools/check_allow", "")

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def run_on(self, path, text, *others):
        """What it says of a tree that has this file, and `others` that were written before."""
        self.write(path, text)
        output = io.StringIO()
        before = os.getcwd()
        os.chdir(self.root)
        try:
            with contextlib.redirect_stdout(output):
                status = check_style.main([path, *others])
        finally:
            os.chdir(before)
        self.assertEqual(status, 1 if output.getvalue() else 0)
        return output.getvalue()

    def test_finds_each_rule(self):
        for rule, path, text in [
            ("spdx", "base/x.cc", "int x;\n"),
            ("length", "base/x.cc", SPDX + "\n" * 500),
            ("once", "base/x.h", SPDX),
            ("home", "daemon/x.h", SPDX + "// Home:\n// control.\n#pragma once\nclass X {\n};\n"),
            ("home", "daemon/x.h", SPDX + "// Home: the lane.\n#pragma once\nclass X final : public Y {\n};\n"),
            ("home", "daemon/x.h", SPDX + "// Constant, but for what has its home at control.\n#pragma once\n"),
            ("home", "daemon/x.h", SPDX + "// Owned by Y; home as there.\n#pragma once\nclass X {\n};\n"),
            ("home", "daemon/x.h", SPDX + "#pragma once\nclass X {\n  HomeChecker home_;\n};\n"),
            ("sleep", "tests/support/x.cc", SPDX + "std::this_thread::sleep_for(a);\n"),
            ("sleep", "tests/support/x.cc", SPDX + "  sleep(1);\n"),
            ("sleep", "tests/support/x.cc", SPDX + "absl::SleepFor(a);\n"),
            ("cout", "transfer/x.cc", SPDX + "std::cout << 1;\n"),
            ("shared_ptr", "daemon/x.cc", SPDX + "std::shared_ptr<int> p;\n"),
            ("throw", "device/x.cc", SPDX + "throw 1;\n"),
            ("duration", "daemon/x.cc", SPDX + "text = absl::FormatDuration(left);\n"),
            ("duration", "bench/x.cc", SPDX + 'printf("%.3fs", seconds);\n'),
            ("get_bool", "client/x.cc", SPDX + "device.local = nested.get_bool();\n"),
            ("field", "daemon/rpc/x.cc", SPDX + "return Error(code, Reason::kFieldInvalid, text);\n"),
            ("todo", "client/x.cc", SPDX + "// TO" + "DO: more\n"),
            ("dead", "tests/new/x_test.cc", SPDX),
            ("dead", "base/x_test.cc", SPDX),
        ]:
            with self.subTest(rule=rule, text=text[-30:]):
                output = self.run_on(path, text)
                self.assertTrue(output.startswith(path + ":"), output)
                self.assertTrue(output.endswith(f"[{rule}]\n"), output)

    def test_lets_pass_what_is_fine(self):
        self.write("tests/new/CMakeLists.txt", "ferry_tests(new_tests LABEL unit)\n")
        for path, text in [
            ("tests/new/x_test.cc", SPDX),
            ("base/x.cc", SPDX + "// yaml-cpp may throw; no shared_ptr here, no std::cout\n"),
            ("base/x.h", SPDX + "#pragma once\n"),
            ("daemon/x.h", SPDX + "// Home: control.\n#pragma once\nclass X {\n  HomeChecker home_;\n};\n"),
            ("daemon/x.h", SPDX + "// Home: control.\n#pragma once\nclass X;\nstruct Y {};\n"),
            ("daemon/x.h", SPDX + "// Home: control.\n#pragma once\nclass X {\n  virtual void F() = 0;\n};\n"),
            ("daemon/x.h", SPDX + "// Home: its owner's.\n#pragma once\nclass X {\n};\n"),
            ("bench/x.cc", SPDX + "std::cout << 1; std::this_thread::sleep_for(a);\n"),
            ("base/full.cc", SPDX + "\n" * 499),
        ]:
            with self.subTest(path=path):
                self.assertEqual(self.run_on(path, text), "")

    def test_each_class_of_a_header_checks_its_home(self):
        begin = SPDX + "// Home: control.\n#pragma once\n"
        checked, unchecked = "class X {\n  HomeChecker home_;\n};\n", "class Y {\n  void F();\n};\n"
        interface = "class Z {\n  virtual void F() = 0;\n};\n"
        says = "daemon/x.h: names the home of Y, which has no HomeChecker (base/home.h) [home]\n"
        # Neither another class's checker nor an interface beside it excuses a class.
        self.assertEqual(self.run_on("daemon/x.h", begin + checked + unchecked), says)
        self.assertEqual(self.run_on("daemon/x.h", begin + interface + unchecked), says)
        self.assertEqual(self.run_on("daemon/x.h", begin + interface + checked), "")
        # What a class's own comment says goes before what the header says.
        for home, output in [("Home: its owner's.", ""), ("Home:\n// any thread.", ""), ("Home: the lane.", says)]:
            with self.subTest(home):
                self.assertEqual(self.run_on("daemon/x.h", begin + checked + "// A part. " + home + "\n" + unchecked), output)
        bare = SPDX + "#pragma once\n"
        self.assertEqual(self.run_on("daemon/x.h", bare + checked.replace("X", "W") + "// Home: control.\n" + checked),
                         "daemon/x.h: W checks its home, which no \"Home: ...\" names [home]\n")
        # The class that has Y's functions in the .cc file may ask there.
        for function, output in [("void Y::F() {\n  FERRY_CHECK(lane_.IsCurrent());\n}\n", ""),
                                 ("void X::F() {\n  FERRY_CHECK(lane_.IsCurrent());\n}\n", says)]:
            with self.subTest(function):
                self.write("daemon/x.cc", SPDX + function)
                self.assertEqual(self.run_on("daemon/x.h", begin + unchecked), output)

    def long_function(self, lines, begin="void Pair::Match(const Half& half) {\n"):
        return begin + "  Look();\n" * (lines - 2) + "}\n"

    def test_functions_have_70_lines(self):
        for begin, name in [
            ("void Pair::Match(const Half& half) {\n", "Pair::Match"),
            ("static int Count() {\n", "Count"),
            ("template <typename T>\nstd::vector<T> Pair<T>::All(int a = 3) const {\n", "Pair::All"),
            ("Pair::Pair(int a, int b) : a_(a), b_{b}, c_(Make([] { return 1; })) {\n", "Pair::Pair"),
            ("bool operator==(const Pair& a, const Pair& b) {\n", "operator=="),
            ("int Of(const char* text = \"{\", char c = '{') {  // not {\n", "Of"),
            ("const Table& Ops() {\n", "Ops"),
        ]:
            with self.subTest(begin):
                lines = 71 + begin.count("\n") - 1
                text = SPDX + "namespace ferry {\n" + self.long_function(lines, begin) + "}  // namespace ferry\n"
                output = self.run_on("base/x.cc", text)
                size = text.count("\n") - 3
                self.assertEqual(output, f"base/x.cc:3: {name} has {size} lines, more than 70 [function]\n")
        for path, text in [
            ("base/x.cc", SPDX + self.long_function(70)),
            ("tests/base/x.cc", SPDX + self.long_function(90)),
            ("base/x.cc", SPDX + "namespace ferry {\n" + "int x;\n" * 90 + "}\n"),
            ("base/x.h", SPDX + "#pragma once\nclass X {\n" + "  int Get() const { return 1; }\n" * 40 + "  int x_;\n" * 50 + "};\n"),
            ("base/x.cc", SPDX + "const Row kRows[] = {\n" + "    {Of(1), {2}},\n" * 90 + "};\n"),
            ("base/x.cc", SPDX + "// void F() {\n" + "int x;\n" * 90),
            ("base/x.cc", SPDX + "#define BEGIN {\n" + "void F();\n" * 90),
            ("base/x.cc", SPDX + 'const char kText[] = R"(void F() {\n' + "x\n" * 90 + ')";\n'),
        ]:
            with self.subTest(text[:80]):
                self.assertEqual(self.run_on(path, text), "")
        inside = SPDX + "#pragma once\nclass X {\n public:\n" + self.long_function(71, "  void Get() {\n") + "};\n"
        self.assertIn("base/x.h:5: Get has 71 lines", self.run_on("base/x.h", inside))

    def test_a_class_is_in_two_files(self):
        for name in ("a", "b", "c"):
            self.write(f"base/{name}.cc", SPDX + f"void Pair::Impl::Do{name}() {{}}\nint Other{name}() {{ return 1; }}\n")
        self.assertEqual(self.run_on("base/d.cc", SPDX, "base/a.cc", "base/b.cc"), "")
        self.assertEqual(self.run_on("base/d.cc", SPDX, "base/a.cc", "base/b.cc", "base/c.cc"),
                         "base: Pair is in 3 .cc files, more than 2: base/a.cc, base/b.cc, base/c.cc [class]\n")
        # Another folder's class of the same name is another class.
        self.assertEqual(self.run_on("device/c.cc", SPDX + "void Pair::Impl::Do() {}\n", "base/a.cc", "base/b.cc"), "")

    def test_a_class_and_its_impl_are_one(self):
        self.write("base/a.cc", SPDX + "void Pair::Impl::Do() {}\n")
        self.write("base/b.cc", SPDX + "void Pair::Do() {}\n")
        self.write("base/c.cc", SPDX + "void Pair::Impl::Undo() {}\n")
        self.assertIn("base: Pair is in 3 .cc files", self.run_on("base/d.cc", SPDX, "base/a.cc", "base/b.cc", "base/c.cc"))
        self.assertEqual(self.run_on("base/d.cc", SPDX + "void Pair::Part::Do() {}\n", "base/a.cc", "base/b.cc"), "")

    def class_of(self, body, begin="class Pair {\n public:\n"):
        return SPDX + "#pragma once\n" + begin + body + "};\n"

    def methods(self, count):
        return "".join(f"  void Do{i}(int a = Of(1));\n" for i in range(count))

    def test_a_class_has_40_methods(self):
        self.assertEqual(self.run_on("base/x.h", self.class_of(self.methods(40))), "")
        self.assertEqual(self.run_on("base/x.h", self.class_of(self.methods(41))),
                         "base/x.h:5: Pair declares 41 methods, more than 40: take it apart along its data [methods]\n")
        self.assertEqual(self.run_on("tests/base/x.h", self.class_of(self.methods(41))), "")
        for one in ("  int last() const { return last_; }\n", "  static Pair Make();\n", "  [[nodiscard]] bool Has();\n",
                    "  virtual void Do() = 0;\n", "  void Do() override;\n", "  std::map<int, std::string> All() const;\n",
                    "  template <typename T>\n  std::vector<T> Of(T a) const {\n    return {a};\n  }\n",
                    "  auto At(int i) -> int;\n", "  void Wait() REQUIRES(mutex_);\n", " private:\n  void Do1();\n",
                    "  const Pair& operator_of() const;\n"):
            with self.subTest(one):
                self.assertIn("Pair declares 41 methods", self.run_on("base/x.h", self.class_of(self.methods(40) + one)))
                self.assertIn("Pair declares 41 methods", self.run_on("base/x.h", self.class_of(one + self.methods(40))))
        for none in ("  Pair();\n", "  explicit Pair(int a) : a_(a), b_{a} {}\n", "  ~Pair() { End(); }\n",
                     "  virtual ~Pair() = default;\n", "  bool operator==(const Pair&) const = default;\n",
                     "  Pair& operator=(const Pair&) = delete;\n", "  operator bool() const { return true; }\n",
                     "  friend int Of(const Pair& pair);\n", "  using Call = std::function<void(int)>;\n",
                     "  std::function<void(int)> call_;\n", "  static constexpr Time kLong = Seconds(3);\n",
                     "  void (*call_)(int) = nullptr;\n", "  alignas(64) std::atomic<int> count_{Of(0)};\n",
                     "  decltype(&::open) open;\n", "  int a_ GUARDED_BY(mutex_);\n", "  // void Gone();\n",
                     "  static_assert(sizeof(int) == 4);\n", "  enum class Kind : uint8_t { kOne, kTwo };\n",
                     "  struct Part {\n    void Do();\n  };\n", "  void Do41() = delete;\n"):
            with self.subTest(none):
                self.assertEqual(self.run_on("base/x.h", self.class_of(self.methods(40) + none)), "")
                self.assertEqual(self.run_on("base/x.h", self.class_of(none + self.methods(40))), "")

    def test_the_methods_of_an_impl_count(self):
        both = self.class_of(self.methods(20) + " private:\n  struct Impl;\n")
        for begin in ("struct Pair::Impl {\n", "struct Pair::Impl final : Other {\n", "class Pair::Impl {\n"):
            self.write("base/pair_state.h", self.class_of(self.methods(21), begin))
            self.assertIn("base/x.h:5: Pair declares 41 methods", self.run_on("base/x.h", both, "base/pair_state.h"))
        self.write("base/pair_state.h", self.class_of(self.methods(20), "struct Pair::Impl {\n"))
        self.assertEqual(self.run_on("base/x.h", both, "base/pair_state.h"), "")
        # Another folder's class of the same name is another class.
        self.write("device/pair_state.h", self.class_of(self.methods(21), "struct Pair::Impl {\n"))
        self.assertEqual(self.run_on("base/x.h", both, "device/pair_state.h"), "")
        self.write("tools/check_allow", "methods base:Pair  # at most 41: to be taken apart\n")
        self.assertEqual(self.run_on("base/x.h", self.class_of(self.methods(41))), "")
        self.assertIn("Pair declares 42 methods", self.run_on("base/x.h", self.class_of(self.methods(42))))
        self.assertIn("excuses nothing: methods base:Pair", self.run_on("base/x.h", self.class_of(self.methods(40))))

    def test_comments_name_what_there_is(self):
        self.write("base/pair.h", SPDX + "#pragma once\nclass Pair {\n  void Match();  // Gone() is no more\n  int left_;\n};\n")
        self.write("base/pair.cc", SPDX + "void Pair::Match() {}\n")
        self.write("base/sub/y.h", SPDX + "#pragma once\n")
        self.write("docs/y.md", "# Y\n")
        others = ("base/pair.h", "base/pair.cc", "base/sub/y.h", "docs/y.md")
        good = ["base/pair.h", "base/pair", "pair.h", "sub/y.h", "docs/y.md", "y.md", "base/", "Pair::Match", "Pair::left_",
                "ferry::Pair::Match()", "std::vector", "Foreign::Thing", "/base/gone", "x/base/gone", "base/sub/."]
        for ending in (".cc", ".proto"):
            self.assertEqual(self.run_on("base/x" + ending, SPDX + "".join(f"// See {one} here.\n" for one in good), *others), "")
        self.assertEqual(self.run_on("base/x.cc", SPDX + 'const char* k = "base/gone.h";\nint Gone = Pair::Gone;\n', *others), "")
        for name, rule in [("base/gone.h", "path"), ("base/gone", "path"), ("gone.h", "path"), ("docs/gone.md", "path"),
                           ("gone.md", "path"), ("Pair::Gone", "member"), ("Pair::left", "member")]:
            for comment in (f"// See {name}.\n", f"int x;  /* {name} */\n"):
                with self.subTest(comment):
                    output = self.run_on("base/x.cc", SPDX + comment, *others)
                    self.assertRegex(output, rf"^base/x\.cc:2: .*\[{rule}\]\n")

    def test_a_size_that_is_excused_does_not_grow(self):
        self.write("tools/check_allow", "function base/x.cc:Pair::Match  # at most 80 lines: to be taken apart\n")
        self.assertEqual(self.run_on("base/x.cc", SPDX + self.long_function(80)), "")
        self.assertIn("Pair::Match has 81 lines", self.run_on("base/x.cc", SPDX + self.long_function(81)))
        self.assertIn("excuses nothing: function base/x.cc:Pair::Match",
                      self.run_on("base/x.cc", SPDX + self.long_function(70)))
        self.write("tools/check_allow", "function base/x.cc:Pair::Match  # it is a table\n")
        self.assertIn("Pair::Match has 80 lines", self.run_on("base/x.cc", SPDX + self.long_function(80)))

    def test_an_exception_needs_a_reason_and_a_use(self):
        text = SPDX + "std::shared_ptr<int> p;\n"
        self.write("tools/check_allow", "shared_ptr base/x.cc  # a library wants it\n")
        self.assertEqual(self.run_on("base/x.cc", text), "")
        self.assertIn("excuses nothing: shared_ptr base/x.cc", self.run_on("base/x.cc", SPDX))
        self.write("tools/check_allow", "shared_ptr base/x.cc\n")
        self.write("base/x.cc", text)
        done = subprocess.run([sys.executable, "-B", CHECK, "base/x.cc"], cwd=self.root,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("# reason", done.stderr)

    def test_pages_name_what_there_is(self):
        self.write("transfer/x.cc", SPDX + """
void Engine::Impl::Match(Half& half) {
  Compare(half);
}
namespace {
Route Pick() { return {}; }
}  // namespace
""")
        self.write("transfer/x.h", SPDX + "#pragma once\nclass Engine {\n  bool Compare();  // Gone() is no more\n};\n")
        self.write("docs/y.md", "# Y\n\n## When it is `taken`: a case\n")
        others = ("transfer/x.cc", "transfer/x.h", "docs/y.md")
        good = ["`transfer/x.cc: Match`", "`transfer/x.cc: Engine::Impl::Match`", "`transfer/x.cc: Pick`",
                "`transfer/x.h: Engine`", "`transfer/x.h: Engine::Compare`", "`transfer/x.cc`", "`transfer/`",
                "`transfer/x.{cc,h}`", "`docs/*.md`", "`transfer/NAME/`", "`transfer/a.sock`", "`other/x.cc`",
                "[y](y.md)", "[y](y.md#when-it-is-taken-a-case)", "[here](#top)", "[away](https://example.org/x)",
                "```\n`transfer/gone.cc`\n```", "    `transfer/gone.cc`", "`[no](gone.md)`"]
        self.assertEqual(self.run_on("docs/x.md", "# Top\n\n" + "\n\n".join(good) + "\n", *others), "")
        for text, rule in [("`transfer/x.cc: Compare`", "place"), ("`transfer/x.cc: Impl`", "place"),
                           ("`transfer/x.cc: Other::Match`", "place"), ("`transfer/x.h: Gone`", "place"),
                           ("`transfer/gone.cc: Match`", "place"), ("- an item\n\n    `transfer/x.cc:\n    Gone`", "place"),
                           ("`transfer/gone.cc`", "path"), ("`transfer/x.{cc,gone}`", "path"), ("`docs/*.txt`", "path"),
                           ("[y](gone.md)", "link"), ("[y](y.md#when)", "link"), ("[here](#gone)", "link")]:
            with self.subTest(text):
                output = self.run_on("docs/x.md", "# Top\n\n" + text + "\n", *others)
                self.assertRegex(output, rf"^docs/x\.md: .*\[{rule}\]\n$")

    def test_pages_are_wrapped(self):
        long_line = "word " * 24 + "w\n"
        for text in [long_line[:-2] + "\n", "| " + long_line, "# " + long_line, "    " + long_line,
                     "```\n" + long_line + "```\n", "[here](" + "x" * 130 + ".md)\n"]:
            with self.subTest(text):
                self.assertNotIn("[wrap]", self.run_on("docs/x.md", text))
        for text in [long_line, "- " + long_line, "- an item\n    " + long_line]:
            with self.subTest(text):
                output = self.run_on("docs/x.md", "# X\n\n" + text)
                self.assertRegex(output, r"^docs/x\.md:[34]: .*\[wrap\]\n$")
        self.assertIn(", and 1 more: ", self.run_on("docs/x.md", long_line * 2))

    def test_a_folders_readme_begins_with_its_path(self):
        for path, text in [("transfer/clique/README.md", "# transfer/clique\n\nGroups.\n"), ("README.md", "# Ferry\n"),
                           ("docs/page.md", "# Page\n")]:
            self.assertEqual(self.run_on(path, text), "")
        for text in ("#transfer / clique\n", "# clique\n", "\n# transfer/clique\n", "# transfer/clique/\n", ""):
            with self.subTest(text):
                self.assertRegex(self.run_on("transfer/clique/README.md", text),
                                 r"^transfer/clique/README\.md:1: begins with '.*', not with '# transfer/clique' \[readme\]\n$")

    def test_pages_of_the_past_may_name_what_is_gone(self):
        self.write("transfer/x.cc", SPDX)
        for page in ("docs/decisions/x.md", "CHANGELOG.md"):
            self.assertEqual(self.run_on(page, "`transfer/gone.cc: Match`, `transfer/gone.cc`\n", "transfer/x.cc"), "")
            self.assertIn("[link]", self.run_on(page, "[y](gone.md)\n"))


if __name__ == "__main__":
    unittest.main()
