// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/barred_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/job/compiled_program.h"
#include "tests/daemon/sockets.h"
#include "tests/daemon/support.h"

namespace ferry {
namespace {

using ::testing::AllOf;
using testing::Directory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Is;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Fingerprint(char letter) { return std::string(32, letter); }

BarredProgram At(char letter, uint64_t device = 4) {
  BarredProgram program;
  program.fingerprint = Fingerprint(letter);
  program.device = GlobalDeviceId(device);
  program.gpu = "GPU-01234567-89ab-cdef-0123-456789abcdef";
  program.target = "sm_90a";
  program.uid = 1000;
  program.job = MakeTransferId(SessionId(5), 17);
  program.when = absl::FromUnixSeconds(1'800'000'000);
  program.what = "launch a kernel: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal\naddress)";
  return program;
}

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string Letters(const BarredPrograms& barred) {
  std::string letters;
  for (const BarredProgram& program : barred.List()) letters += program.fingerprint[0];
  return letters;
}

class BarredProgramsTest : public ::testing::Test {
 protected:
  Directory directory_;
  const std::string path_ = directory_ / "barred-programs";
};

TEST_F(BarredProgramsTest, TheNextLifeKnowsAllOfThem) {
  {
    BarredPrograms barred(path_);
    EXPECT_THAT(barred.warnings(), IsEmpty());
    EXPECT_THAT(barred.Bar({At('a')}), Is("OK"));
    EXPECT_THAT(barred.Bar({At('b', 7)}), Is("OK"));
  }
  const BarredPrograms next(path_);
  EXPECT_THAT(next.warnings(), IsEmpty());
  ASSERT_EQ(Letters(next), "ba");
  const BarredProgram program = next.List().back();
  const BarredProgram same = At('a');
  EXPECT_EQ(program.device, same.device);
  EXPECT_EQ(program.gpu, same.gpu);
  EXPECT_EQ(program.target, same.target);
  EXPECT_EQ(program.uid, same.uid);
  EXPECT_EQ(program.job, same.job);
  EXPECT_EQ(program.when, same.when);
  EXPECT_EQ(program.what, same.what);
  EXPECT_EQ(program.suspects, 1u);
  EXPECT_EQ(program.losses, 1u);
}

TEST_F(BarredProgramsTest, ARefusalSaysWhichWhenWhyAndHowItIsReleasedButNotWhose) {
  BarredPrograms barred(path_);
  EXPECT_THAT(barred.Check(Fingerprint('a')), Is("OK"));
  ASSERT_THAT(barred.Bar({At('a')}), Is("OK"));
  const absl::Status refused = barred.Check(Fingerprint('a'));
  EXPECT_THAT(refused, Is("FAILED_PRECONDITION/NOT_ALLOWED"));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("program 6161616161616161 is barred"),
                    HasSubstr("GPU-01234567-89ab-cdef-0123-456789abcdef (device 4) was lost at it "
                              "at 2027-01-15T08:00:00Z"),
                    HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"),
                    HasSubstr("`ferryctl program release 6161616161616161`"),
                    ::testing::Not(HasSubstr("1000")), ::testing::Not(HasSubstr("one of"))));
  EXPECT_THAT(barred.Check(Fingerprint('b')), Is("OK"));
  EXPECT_EQ(barred.refusals(), 1u);
}

TEST_F(BarredProgramsTest, AreReleasedByHandAndStaySo) {
  BarredPrograms barred(path_);
  ASSERT_THAT(barred.Bar({At('a'), At('b'), At('c')}), Is("OK"));
  EXPECT_THAT(barred.Release({std::string(8, 'b')}).status(), Is("OK"));
  EXPECT_EQ(Letters(barred), "ac");
  EXPECT_EQ(Letters(BarredPrograms(path_)), "ac");
  EXPECT_EQ(barred.ReleaseAll().value_or(0), 2u);
  EXPECT_THAT(barred.Check(Fingerprint('a')), Is("OK"));
  EXPECT_EQ(BarredPrograms(path_).size(), 0u);
}

TEST_F(BarredProgramsTest, ARequestThatIsWrongReleasesNone) {
  BarredPrograms barred(path_);
  BarredProgram twin = At('a');
  twin.fingerprint.back() = 'b';
  ASSERT_THAT(barred.Bar({At('a'), twin, At('c')}), Is("OK"));
  const std::string good = Fingerprint('c');
  EXPECT_THAT(barred.Release({good, Fingerprint('d')}).status(), Is("NOT_FOUND/ID_STALE"));
  EXPECT_THAT(barred.Release({good, "ccc"}).status(), Is("INVALID_ARGUMENT/FIELD_INVALID"));
  EXPECT_THAT(barred.Release({good, good + "c"}).status(), Is("INVALID_ARGUMENT/FIELD_INVALID"));
  EXPECT_THAT(barred.Release({good, std::string(8, 'a')}).status(),
              Is("INVALID_ARGUMENT/FIELD_INVALID"));
  EXPECT_EQ(barred.size(), 3u);
  EXPECT_THAT(barred.Release({Fingerprint('a'), good}).status(), Is("OK"));
  EXPECT_EQ(barred.List().front().fingerprint, twin.fingerprint);
}

TEST_F(BarredProgramsTest, ALossMoreIsCountedAndTheOldestGoes) {
  BarredPrograms barred(path_);
  ASSERT_THAT(barred.Bar({At('a')}), Is("OK"));
  ASSERT_THAT(barred.Bar({At('a', 9)}), Is("OK"));
  ASSERT_THAT(barred.List(), SizeIs(1));
  EXPECT_EQ(barred.List()[0].losses, 2u);
  EXPECT_EQ(barred.List()[0].device, GlobalDeviceId(9));
  std::vector<BarredProgram> many;
  for (size_t i = 0; i < BarredPrograms::kMost; ++i) {
    many.push_back(At('b'));
    many.back().fingerprint[0] = static_cast<char>(i);
  }
  ASSERT_THAT(barred.Bar(many), Is("OK"));
  EXPECT_EQ(barred.size(), BarredPrograms::kMost);
  EXPECT_THAT(barred.Check(Fingerprint('a')), Is("OK"));
  EXPECT_EQ(BarredPrograms(path_).size(), BarredPrograms::kMost);
}

TEST_F(BarredProgramsTest, OfADamagedFileCountsWhatCanBeRead) {
  ASSERT_THAT(BarredPrograms(path_).Bar({At('a'), At('b'), At('c')}), Is("OK"));
  std::string text = TextOf(path_);
  text[text.find("6262")] = 'x';
  Write(path_, text);
  {
    const BarredPrograms barred(path_);
    EXPECT_EQ(Letters(barred), "ac");
    EXPECT_THAT(barred.warnings(), ElementsAre(AllOf(HasSubstr("1 lines are damaged"),
                                                     HasSubstr("barred-programs.bad"),
                                                     HasSubstr("2 programs could be read"))));
  }
  EXPECT_EQ(TextOf(path_ + ".bad"), text);
  const BarredPrograms again(path_);
  EXPECT_THAT(again.warnings(), IsEmpty());
  EXPECT_EQ(Letters(again), "ac");
}

TEST_F(BarredProgramsTest, NoFileKeepsADaemonFromItsStart) {
  ASSERT_THAT(BarredPrograms(path_).Bar({At('a')}), Is("OK"));
  const std::string whole = TextOf(path_);
  for (const std::string& text :
       {std::string(), std::string("ferry barred programs 2\n"), std::string(2 << 20, 'x'),
        std::string("\0\xff\n", 3), absl::StrCat(whole, std::string(70, 'f'))}) {
    Write(path_, text);
    const BarredPrograms barred(path_);
    EXPECT_THAT(barred.warnings(), SizeIs(1)) << text.substr(0, 40);
    EXPECT_LE(barred.size(), 1u);
    EXPECT_THAT(BarredPrograms(path_).warnings(), IsEmpty());
  }
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  const BarredPrograms barred(path_);
  EXPECT_THAT(barred.warnings(), ElementsAre(HasSubstr("no plain file")));
}

TEST_F(BarredProgramsTest, WhatCannotBeKeptIsBarredInThisLifeAndNotReleased) {
  BarredPrograms barred(path_);
  std::filesystem::create_directory(path_);
  EXPECT_THAT(barred.Bar({At('a')}), Is("UNAVAILABLE/NOT_READY"));
  EXPECT_THAT(barred.Check(Fingerprint('a')), Is("FAILED_PRECONDITION/NOT_ALLOWED"));
  EXPECT_THAT(barred.ReleaseAll().status(), Is("UNAVAILABLE/NOT_READY"));
  EXPECT_EQ(barred.size(), 1u);
}

TEST_F(BarredProgramsTest, IsRefusedWhenItIsCompiledForAGpu) {
  const std::string text =
      "program 1\nbuffer @y write 4\n%x = constant splat=1 : f32[1]\n"
      "store @y, %x\n";
  const CompileResult compiled = CompileProgram(text, {});
  ASSERT_THAT(compiled.status, Is("OK"));
  BarredProgram program = At('a');
  program.fingerprint = compiled.program->fingerprint;
  BarredPrograms barred(path_);
  ASSERT_THAT(barred.Bar({program}), Is("OK"));
  const CompileResult refused =
      CompileProgram(text, {}, {*compute::GpuArchOf("sm_90a"), nullptr, &barred});
  EXPECT_THAT(refused.status, Is("FAILED_PRECONDITION/NOT_ALLOWED"));
  EXPECT_THAT(CompileProgram(text, {}).status, Is("OK"));
}

LossStory::Loss Fault(int gpu) { return {"wait: CUDA_ERROR_ILLEGAL_ADDRESS ()", true, gpu}; }

TEST(CulpritsTest, AreWhatTheGpuWasAtThatFailed) {
  const std::vector<GpuAtWork> at_work = {{0, At('a')}, {3, At('b')}};
  const absl::Time now = absl::FromUnixSeconds(1);
  const std::vector<BarredProgram> culprits = CulpritsOf(Fault(3), at_work, now);
  ASSERT_THAT(culprits, SizeIs(1));
  EXPECT_EQ(culprits[0].fingerprint, Fingerprint('b'));
  EXPECT_EQ(culprits[0].suspects, 1u);
  EXPECT_EQ(culprits[0].when, now);
  EXPECT_EQ(culprits[0].what, Fault(3).what);
  EXPECT_THAT(CulpritsOf(Fault(1), at_work, now), IsEmpty());
}

TEST(CulpritsTest, AreAllThatGpusWereAtIfItIsNotKnownWhichFailed) {
  const std::vector<GpuAtWork> at_work = {{0, At('a')}, {1, At('b')}, {2, At('a')}};
  const auto culprits = CulpritsOf(Fault(-1), at_work, absl::FromUnixSeconds(1));
  ASSERT_THAT(culprits, SizeIs(2));
  EXPECT_EQ(culprits[0].suspects, 2u);
  EXPECT_EQ(culprits[1].suspects, 2u);
}

TEST(CulpritsTest, NoProgramIsAtFaultWhereHardwareFailed) {
  LossStory::Loss loss = Fault(0);
  loss.fault = false;
  EXPECT_THAT(CulpritsOf(loss, std::vector<GpuAtWork>{{0, At('a')}}, absl::Now()), IsEmpty());
}

}  // namespace
}  // namespace ferry
