// SPDX-License-Identifier: Apache-2.0
// Another user was there first, with links to what is the daemon's user's: a start is refused with
// what is wrong, and nothing is followed, taken or removed. As root only: becoming others takes
// that.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"
#include "tests/support/other_user.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uid_t kTaker = 61005;
constexpr int kBadConfiguration = 78;

class TakenDirTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become other users";
    ASSERT_EQ(chmod(directory_.path().c_str(), 01777), 0);  // as /tmp
    for (const char* part : {"", "/client", "/admin", "/peer"}) {
      ASSERT_EQ(mkdir((victim_ + part).c_str(), 0700), 0);
    }
    for (const char* file : {"/client/attach.sock", "/admin/admin.sock", "/peer/peer.sock"}) {
      WriteFile(victim_ + file, "another daemon's");
    }
    before_ = Everything();
  }
  // What is in the victim's directory: modes, owners, sizes.
  std::map<std::string, std::string> Everything() {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(victim_)) {
      struct stat info {};
      EXPECT_EQ(lstat(entry.path().c_str(), &info), 0);
      all[entry.path()] = absl::StrCat(info.st_mode, " ", info.st_uid, " ", info.st_gid, " ",
                                       info.st_size, " ", info.st_ino);
    }
    return all;
  }
  // A daemon of root's that is to be at `path` says what is wrong, and leaves the victim alone.
  template <typename Text>
  void ExpectRefused(const std::string& path, const Text& text) {
    const Finished refused = RunProgram(
        {FerrydProgram(), "--runtime-dir", path, "--devices", "host:1", "--gpus", "none"});
    EXPECT_EQ(refused.status, kBadConfiguration) << refused.output;
    EXPECT_THAT(refused.output, AllOf(text, HasSubstr("runtime_dir")));
    EXPECT_EQ(Everything(), before_);
  }
  static void AsEve(const std::function<bool()>& run) {
    AsUser(kTaker, [&] { EXPECT_TRUE(run()); });
  }
  static bool Link(const std::string& to, const std::string& at) {
    return symlink(to.c_str(), at.c_str()) == 0;
  }

  TemporaryDirectory directory_;
  const std::string victim_ = directory_ / "victim", taken_ = directory_ / "ferry";
  std::map<std::string, std::string> before_;
};

TEST_F(TakenDirTest, ALinkToAnothersIsNotFollowed) {
  AsEve([&] { return Link(victim_, taken_); });
  ExpectRefused(taken_, HasSubstr("a link"));
}

TEST_F(TakenDirTest, ADirectoryOfAnothersIsNotTaken) {
  AsEve([&] {
    bool made = mkdir(taken_.c_str(), 0777) == 0;
    for (const char* part : {"/client", "/admin", "/peer"}) {
      made = made && Link(victim_ + part, taken_ + part);
    }
    return made && Link(victim_ + "/client/attach.sock", taken_ + "/lock");
  });
  ExpectRefused(taken_, HasSubstr("belongs to uid 61005"));
}

TEST_F(TakenDirTest, NorIsOneBelowItTaken) {
  AsEve([&] { return mkdir(taken_.c_str(), 0777) == 0 && Link(victim_, taken_ + "/run"); });
  for (const char* below : {"/f", "/run", "/run/f", "/new/f"}) {
    ExpectRefused(taken_ + below,
                  HasSubstr(absl::StrCat("the directory ", taken_,
                                         " on the way to it belongs to uid 61005")));
  }
  EXPECT_EQ(access((taken_ + "/new").c_str(), F_OK), -1);
}

// It is the daemon's user's, and others were let write there for a while.
TEST_F(TakenDirTest, LinksInOnesOwnAreNotFollowed) {
  ASSERT_EQ(mkdir(taken_.c_str(), 0777), 0);
  ASSERT_EQ(chmod(taken_.c_str(), 0777), 0);
  AsEve([&] { return Link(victim_ + "/client", taken_ + "/client"); });
  ExpectRefused(taken_, HasSubstr("client: there is something else, or a link"));
  ASSERT_EQ(unlink((taken_ + "/client").c_str()), 0);
  ASSERT_EQ(chmod(taken_.c_str(), 0777), 0);
  ASSERT_EQ(unlink((taken_ + "/lock").c_str()), 0);
  AsEve([&] { return Link(victim_ + "/admin/admin.sock", taken_ + "/lock"); });
  ExpectRefused(taken_, HasSubstr("open " + taken_ + "/lock"));
}

// Where nothing can be made: what, why and what to do, once.
TEST_F(TakenDirTest, WhereNothingCanBeMadeIsSaid) {
  const auto refused = [&](std::vector<std::string> command, const std::string& directory) {
    command.insert(command.end(), {FerrydProgram(), "--runtime-dir", directory, "--devices",
                                   "host:1", "--gpus", "none"});
    const Finished finished = RunProgram(command);
    EXPECT_EQ(finished.status, kBadConfiguration) << finished.output;
    EXPECT_THAT(finished.output, HasSubstr("choose another node.runtime_dir (--runtime-dir), or "));
    return finished.output;
  };
  const std::string mounted = directory_ / "mounted";
  ASSERT_EQ(mkdir(mounted.c_str(), 0755), 0);
  const std::vector<std::string> read_only = {
      "/usr/bin/unshare",
      "-m",
      "/bin/sh",
      "-c",
      absl::StrCat("mount -t tmpfs -o ro none ", mounted, " && exec \"$@\""),
      "sh"};
  EXPECT_THAT(refused(read_only, mounted + "/run"), HasSubstr("Read-only file system"));
  EXPECT_THAT(refused(read_only, mounted), HasSubstr("Read-only file system"));
  ASSERT_EQ(chmod(mounted.c_str(), 0755), 0);
  const std::vector<std::string> another_user = {
      "/usr/bin/setpriv", absl::StrCat("--reuid=", kTaker), absl::StrCat("--regid=", kTaker),
      "--clear-groups"};
  EXPECT_THAT(refused(another_user, mounted + "/run"),
              AllOf(HasSubstr("Permission denied"), HasSubstr("give uid 61005 the right")));
}

}  // namespace
}  // namespace ferry::testing
