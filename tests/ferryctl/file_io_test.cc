// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/file_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry::tools {
namespace {

namespace fs = std::filesystem;

class FileIoTest : public ::testing::Test {
 protected:
  FileIoTest()
      : folder_(fs::path(::testing::TempDir()) /
                absl::StrCat("file_io_", getpid(), "_",
                             ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(folder_);
  }
  ~FileIoTest() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ / name; }
  void Put(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  std::string Get(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static absl::Status Write(const std::string& path, const std::string& bytes) {
    ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
    RETURN_IF_ERROR(file.Write(0, bytes.data(), bytes.size()));
    return file.Commit();
  }
  mode_t ModeOf(const std::string& name) const {
    struct stat info = {};
    EXPECT_EQ(stat(Path(name).c_str(), &info), 0) << name;
    return info.st_mode & 07777;
  }
  static void ExpectRefused(const absl::Status& status, const std::string& text) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  }

  fs::path folder_;
};

TEST_F(FileIoTest, AnEmptyPathIsRefusedBeforeAByteIsWritten) {
  ExpectRefused(OutputFile::Create("").status(), "an empty path names no file");
}

TEST_F(FileIoTest, AFileThatIsLargerThanTheLimitNamesTheLimit) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto file = OutputFile::Create(Path("out"));
    const absl::Status status = file.ok() ? file->Reserve(8192) : file.status();
    _exit(status.code() == absl::StatusCode::kResourceExhausted &&
                  absl::StrContains(status.message(), "4096 bytes in a file (ulimit -f)")
              ? 0
              : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(FileIoTest, OutputAppearsOnlyOnCommit) {
  Put("out", "old");
  {
    auto file = OutputFile::Create(Path("out"));
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Write(0, "new", 3).ok());
  }
  EXPECT_EQ(Get("out"), "old");
  {
    auto file = OutputFile::Create(Path("out"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Reserve(3).ok());
    ASSERT_TRUE(file->Write(0, "new", 3).ok());
    ASSERT_TRUE(file->Commit().ok());
  }
  EXPECT_EQ(Get("out"), "new");
}

TEST_F(FileIoTest, OutputGoesWhereLinksLead) {
  fs::create_directories(folder_ / "below");
  Put("below/file", "old");
  fs::create_symlink("below/file", Path("near"));
  fs::create_symlink(Path("near"), Path("far"));
  ASSERT_TRUE(Write(Path("far"), "new").ok());
  EXPECT_EQ(Get("below/file"), "new");
  EXPECT_TRUE(fs::is_symlink(Path("near")));
  EXPECT_TRUE(fs::is_symlink(Path("far")));

  fs::create_symlink("below/fresh", Path("dangling"));
  ASSERT_TRUE(Write(Path("dangling"), "made").ok());
  EXPECT_EQ(Get("below/fresh"), "made");
  EXPECT_TRUE(fs::is_symlink(Path("dangling")));

  fs::create_symlink("round", Path("round"));
  EXPECT_FALSE(Write(Path("round"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(Path("round")));
}

// As /dev/stdout does, which is a link to one.
TEST_F(FileIoTest, OutputFollowsLinksToOpenFiles) {
  Put("file", "old");
  const UniqueFd fd(open(Path("file").c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(fd.valid());
  fs::create_symlink(absl::StrCat("/proc/self/fd/", fd.get()), Path("stdout"));
  ASSERT_TRUE(Write(Path("stdout"), "new").ok());
  EXPECT_EQ(Get("file"), "new");
  EXPECT_TRUE(fs::is_symlink(Path("stdout")));

  const UniqueFd gone(open(Path("gone").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(gone.valid());
  fs::remove(Path("gone"));
  fs::create_symlink(absl::StrCat("/proc/self/fd/", gone.get()), Path("nameless"));
  ExpectRefused(Write(Path("nameless"), "new"), "a link to a file that has no name");
  EXPECT_TRUE(fs::is_symlink(Path("nameless")));
}

TEST_F(FileIoTest, OutputKeepsTheMode) {
  for (const mode_t mode : {0600, 0640, 0666, 0755}) {
    Put("file", "old");
    ASSERT_EQ(chmod(Path("file").c_str(), mode), 0);
    ASSERT_TRUE(Write(Path("file"), "new").ok());
    EXPECT_EQ(Get("file"), "new");
    EXPECT_EQ(ModeOf("file"), mode);
  }
}

TEST_F(FileIoTest, OutputIsNoPipeOrDevice) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", Path("link"));
  for (const char* name : {"pipe", "link"}) {
    ExpectRefused(Write(Path(name), "new"), "not a regular file");
  }
  EXPECT_TRUE(fs::is_fifo(Path("pipe")));
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  ExpectRefused(Write(folder_, "new"), "not a regular file");
}

// Opening one for reading waits for somebody who writes.
TEST_F(FileIoTest, InputIsNoPipe) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  ExpectRefused(InputFile::Open(Path("pipe")).status(), "not a regular file");
}

}  // namespace
}  // namespace ferry::tools
