// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/program_run.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "compute/program/text.h"

namespace ferry::tools {
namespace {

class ProgramRunTest : public ::testing::Test {
 protected:
  ProgramRunTest()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                (std::string("program_run_") +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
    program_ = compute::Parse(
                   "program 1\nbuffer @x read 4\nbuffer @sum read_write 4\nbuffer @y write 8\n"
                   "%x = input @x : u8[4]\naccumulate @sum, %x\n%n = not %x\n"
                   "store @y, %n offset=2\n")
                   .program;
    Put("x", std::string("\1\2\3\4", 4));
    Put("sum", std::string("\1\1\1\1", 4));
  }
  ~ProgramRunTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ / name; }
  void Put(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  std::string Get(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string Bound(const std::string& name) const { return name + "=" + Path(name); }
  void ExpectInvalid(const std::vector<std::string>& bindings, const std::string& text) const {
    const absl::Status status = RunProgram(program_, bindings, 1);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
    EXPECT_FALSE(std::filesystem::exists(Path("y")));
  }

  std::filesystem::path folder_;
  compute::Program program_;
};

TEST_F(ProgramRunTest, ReadsAndWritesFiles) {
  const absl::Status status = RunProgram(program_, {Bound("x"), Bound("y"), Bound("sum")}, 1);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Get("y"), std::string("\0\0\376\375\374\373\0\0", 8));
  EXPECT_EQ(Get("sum"), std::string("\2\3\4\5", 4));
  EXPECT_EQ(Get("x"), std::string("\1\2\3\4", 4));
}

TEST_F(ProgramRunTest, SaysWhatIsWrongWithBindings) {
  ExpectInvalid({Bound("x"), Bound("y")}, "@sum of 4 bytes is not bound");
  ExpectInvalid({Bound("x"), Bound("y"), Bound("sum"), "z=1"}, "no buffer @z");
  ExpectInvalid({Bound("x"), Bound("x"), Bound("y"), Bound("sum")}, "@x is bound twice");
  ExpectInvalid({"x"}, "x is not NAME=FILE");
  Put("x", "12345");
  ExpectInvalid({Bound("x"), Bound("y"), Bound("sum")}, "has 5 bytes, @x has 4");
}

// Said before anything is allocated, which might succeed, and kill the process later.
TEST_F(ProgramRunTest, WhatDoesNotFitIntoMemoryIsRefusedAndSaysWhatHoldsIt) {
  program_ = compute::Parse(
                 "program 1\nbuffer @y write 4\n%a = iota dimension=0 : f32[1099511627776]\n"
                 "%b = cumulative_sum %a dimension=0 \"running\"\n"
                 "%s = slice %b start=[5] limit=[6]\nstore @y, %s\n")
                 .program;
  const absl::Status status = RunProgram(program_, {Bound("y")}, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  for (const char* part :
       {"it asks for ", " are available", "'running' f32[1099511627776] of 4398046511104 bytes"}) {
    EXPECT_NE(status.message().find(part), absl::string_view::npos) << status;
  }
  EXPECT_FALSE(std::filesystem::exists(Path("y")));
  program_ = compute::Parse("program 1\nbuffer @y write 4398046511104\n").program;
  const absl::Status buffers = RunProgram(program_, {Bound("y")}, 1);
  EXPECT_EQ(buffers.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(buffers.message().find("its buffers have 4398046511104 bytes, "),
            absl::string_view::npos)
      << buffers;
}

// Else what one buffer becomes would take the place of what another was, or becomes.
TEST_F(ProgramRunTest, AFileThatIsWrittenIsBoundOnce) {
  std::filesystem::create_symlink(Path("x"), Path("link"));
  for (const std::string& same :
       {Path("x"), Path(".") + "/../" + folder_.filename().string() + "/x", Path("link")}) {
    ExpectInvalid({Bound("x"), "y=" + same, Bound("sum")},
                  "@x and @y are bound to one file, " + same);
  }
  ExpectInvalid({Bound("x"), "y=" + Path("new"), "sum=" + Path("x")},
                "@x and @sum are bound to one file");
  EXPECT_EQ(Get("x"), std::string("\1\2\3\4", 4));
  program_ = compute::Parse(
                 "program 1\nbuffer @a read 4\nbuffer @b read 4\nbuffer @y write 4\n"
                 "%a = input @a : u8[4]\n%b = input @b : u8[4]\n%s = add %a, %b\nstore @y, %s\n")
                 .program;
  const absl::Status both =
      RunProgram(program_, {"a=" + Path("x"), "b=" + Path("x"), Bound("y")}, 1);
  EXPECT_TRUE(both.ok()) << both;
  EXPECT_EQ(Get("y"), std::string("\2\4\6\10", 4));
}

TEST_F(ProgramRunTest, AllThatIsUnboundIsNamed) {
  ExpectInvalid({Bound("sum")},
                "@x of 4 bytes is not bound: --bind x=FILE, @y of 8 bytes is not bound: --bind "
                "y=FILE");
}

// As where y is a link to x, but both are still to be made.
TEST_F(ProgramRunTest, AFileThatLinksWouldMakeIsBoundOnce) {
  std::filesystem::create_symlink("made", Path("y"));
  program_ = compute::Parse(
                 "program 1\nbuffer @y write 4\nbuffer @made write 4\n"
                 "%y = constant splat=1 : u8[4]\nstore @y, %y\nstore @made, %y\n")
                 .program;
  ExpectInvalid({Bound("y"), Bound("made")}, "@y and @made are bound to one file");
}

TEST_F(ProgramRunTest, WhatCannotBeWrittenIsRefusedBeforeTheRun) {
  std::filesystem::create_directory(Path("y"));
  const absl::Status status = RunProgram(program_, {Bound("x"), Bound("y"), Bound("sum")}, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(Get("sum"), std::string("\1\1\1\1", 4));
}

TEST_F(ProgramRunTest, FilesThatAreNotThereAreNamed) {
  std::filesystem::remove(Path("sum"));
  const absl::Status status = RunProgram(program_, {Bound("x"), Bound("y"), Bound("sum")}, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find(Path("sum")), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace ferry::tools
