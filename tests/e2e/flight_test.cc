// SPDX-License-Identifier: Apache-2.0
// Flight dumps of two nodes, compared: what people ask when a transfer does not finish.
#include <filesystem>
#include <regex>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using FlightTest = ClusterTest;

TEST_F(FlightTest, ATraceOfTwoNodesHasBothEndsOfATransferAndAnArrow) {
  Start();
  End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
  ExpectTransfer(source, destination, "k");
  const std::string dumps = node(0).runtime_dir();
  std::vector<std::string> files;
  for (size_t i : {0, 1}) {
    files.push_back(absl::StrCat(dumps, "/", i, ".flight"));
    Ferryctl(absl::StrCat("flight dump -o ", files[i]), 0, i);
  }
  const std::string trace = Ferryctl(absl::StrCat("flight trace ", files[0], " ", files[1]));
  for (const char* part : {"\"name\":\"send 1/1\"", "\"name\":\"receive 1/1\"",
                           "\"name\":\"moves\"", "\"ph\":\"s\"", "\"ph\":\"f\"", "node-b"}) {
    EXPECT_THAT(trace, HasSubstr(part));
  }
  EXPECT_THAT(trace, HasSubstr("lane of device 2: receives"));
  const std::string own = Ferryctl("flight dump --trace");
  EXPECT_THAT(own, HasSubstr("\"name\":\"send 1/1\""));
  EXPECT_THAT(own, HasSubstr("lane of device 0: sends"));
  EXPECT_THAT(Ferryctl(absl::StrCat("flight trace ", files[0], " ", files[0]), 1),
              HasSubstr("there is another dump of node-a before it"));
}

TEST_F(FlightTest, DumpsOfTwoNodesTellWhoLacksWhat) {
  Start();
  End source = OpenEnd(0, 4096, 0, "trainer"), destination = OpenEnd(1, 4096, 0, "server");
  const std::string dumps = node(0).runtime_dir();
  const auto diff = [&](int expected_status) {
    for (size_t i : {0, 1}) {
      Ferryctl(absl::StrCat("flight dump -o ", dumps, "/", i, ".flight"), 0, i);
    }
    return Ferryctl(absl::StrCat("flight diff ", dumps, "/0.flight ", dumps, "/1.flight"),
                    expected_status);
  };
  EXPECT_THAT(diff(0), HasSubstr("0 without their other half"));

  // One end names another key, and gave up before on the right one.
  Batch first =
      Must(destination.session.Receive(2, {Transfer(0, "step-1", {destination.arena.All()})}));
  ASSERT_THAT(first.Cancel(), IsOk());
  ASSERT_THAT(first.Wait(), Not(IsOk()));
  Batch told = Must(source.session.Send(0, {Transfer(2, "step-1", {source.arena.All()})}));
  ASSERT_THAT(told.Wait(), Is("CANCELLED/CANCELLED"));
  Batch send = Must(source.session.Send(0, {Transfer(2, "step-1", {source.arena.All()})}));
  Batch receive =
      Must(destination.session.Receive(2, {Transfer(0, "step-2", {destination.arena.All()})}));
  ASSERT_TRUE(
      Await([&] { return node(1).admin().Dump().find("offers waiting 1") != std::string::npos; }));
  const std::string text = diff(8);
  EXPECT_THAT(text,
              HasSubstr("node-b lacks the receive of key 'step-1' from device 0 to device 2"));
  EXPECT_THAT(text, HasSubstr("ended"));
  EXPECT_THAT(text, HasSubstr("CANCELLED"));
  EXPECT_THAT(text, HasSubstr("node-b has the offer"));
  EXPECT_THAT(text, HasSubstr("node-a lacks the send of key 'step-2'"));
  EXPECT_THAT(text, HasSubstr("waits at node-b: the key differs"));
  EXPECT_THAT(
      Ferryctl(absl::StrCat("--json flight diff ", dumps, "/0.flight ", dumps, "/1.flight"), 8),
      HasSubstr("\"lacks\":[{\"node\":"));
  EXPECT_THAT(send.Cancel(), IsOk());
  EXPECT_THAT(receive.Cancel(), IsOk());

  EXPECT_THAT(Ferryctl(absl::StrCat("flight diff ", dumps, "/0.flight ", dumps, "/0.flight"), 1),
              HasSubstr("both are of node-a"));
  EXPECT_THAT(Ferryctl(absl::StrCat("flight diff ", dumps, "/0.flight ", dumps, "/none"), 3),
              HasSubstr("/none"));
  EXPECT_THAT(Ferryctl(absl::StrCat("flight diff ", dumps, "/0.flight ", FerryctlProgram()), 1),
              HasSubstr("no JSON object"));
  Ferryctl("flight", 2);
}

// `text` without what differs from run to run.
std::string Timeless(std::string text) {
  const std::pair<const char*, const char*> differs[] = {
      {"domain [0-9a-f]+", "domain D"},
      {"@[0-9a-f]{16}", "@I"},
      {"posted [0-9.]+ [a-z]+ before", "posted T before"},
      {"session [0-9]+ \\(transfer [0-9]+\\)", "session S (transfer X)"}};
  for (const auto& [pattern, name] : differs) {
    text = std::regex_replace(text, std::regex(pattern), name);
  }
  return text;
}

// The README shows some lines of what the example prints, one after the other: the first block of
// lines that begin with four blanks behind its command.
TEST_F(FlightTest, TheTransferThatDoesNotFinishIsToldAsInTheReadme) {
  const std::string readme = ReadFile(FERRY_SOURCE "/README.md");
  const std::string command = "\n    examples/stuck-transfer\n";
  const size_t begin = readme.find(command);
  ASSERT_NE(begin, std::string::npos);
  std::istringstream lines(readme.substr(begin + command.size()));
  std::string shown;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("    ", 0) == 0) {
      absl::StrAppend(&shown, line.substr(4), "\n");
    } else if (!shown.empty()) {
      break;
    }
  }
  ASSERT_THAT(shown, HasSubstr("the key differs"));

  Start();
  const std::string &a = node(0).runtime_dir(), &b = node(1).runtime_dir();
  const std::string programs = std::filesystem::path(FerryctlProgram()).parent_path();
  const Finished played =
      RunProgram({"/usr/bin/env", absl::StrCat("PATH=", programs, ":", getenv("PATH")),
                  FERRY_SOURCE "/examples/stuck-transfer", a, b});
  EXPECT_EQ(played.status, 0);
  EXPECT_THAT(Timeless(played.output), HasSubstr(Timeless(shown)));
}

}  // namespace
}  // namespace ferry::testing
