// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "base/fd.h"
#include "base/status.h"

namespace ferry {
namespace {

using ::testing::MatchesRegex;

// What `write` logs, as lines.
template <typename Write>
std::vector<std::string> Logged(LogFormat format, const std::string& level, Write write) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(ConfigureLog(format, level).ok());
  write();
  const std::string text = testing::internal::GetCapturedStderr();
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  EXPECT_EQ(lines.back(), "") << "the last line has no end";
  lines.pop_back();
  return lines;
}

nlohmann::json LoggedJson(const std::string& text) {
  const auto lines =
      Logged(LogFormat::kJson, "info", [&] { FERRY_LOG(warn, "an.event", "{}", text); });
  EXPECT_EQ(lines.size(), 1u);
  return nlohmann::json::parse(lines.at(0));
}

TEST(LogTest, TextIsOneLineAnEvent) {
  const auto lines = Logged(LogFormat::kText, "info", [] {
    FERRY_LOG(info, "session.open", "session {} uid {}", 3, 1000);
    FERRY_LOG(err, "bad.name", "name {}", "a\nb\x1b[0m");
  });
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0],
              MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z "
                           "I session.open: session 3 uid 1000"));
  EXPECT_THAT(lines[1], testing::EndsWith(" E bad.name: name a\\x0ab\\x1b[0m"));
}

TEST(LogTest, JsonHasTimeLevelEventAndMessage) {
  const nlohmann::json line = LoggedJson("a: b");
  EXPECT_EQ(line.size(), 4u);
  EXPECT_THAT(line["ts"].get<std::string>(),
              MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{6}Z"));
  EXPECT_EQ(line["level"], "warn");
  EXPECT_EQ(line["event"], "an.event");
  EXPECT_EQ(line["msg"], "a: b");
}

TEST(LogTest, NothingThatATerminalObeysPasses) {
  const auto lines = Logged(LogFormat::kText, "info", [] {
    FERRY_LOG(info, "a.name",
              LogFields("name",
                        "x\x7f\xc2\x9b"
                        "31m"),
              "{}",
              "d\x7f c\xc2\x9b"
              "31m ok\xc2\xa0"
              "gr\xc3\xb6\xc3\x9f"
              "e bad\xff");
  });
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0],
              testing::EndsWith("a.name: d\\x7f c\\xc2\\x9b31m ok\xc2\xa0gr\xc3\xb6\xc3\x9f"
                                "e bad\\xff name=\"x\\u007f\\u009b31m\""));
  EXPECT_EQ(LoggedJson("d\x7f\xc2\x9b")["msg"], "d\x7f\xc2\x9b");
}

TEST(LogTest, WhatOthersChoseIsCutOff) {
  const std::string text(10'000'000, 'x');
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    const auto lines = Logged(
        format, "info", [&] { FERRY_LOG(info, "an.event", LogFields("name", text), "{}", text); });
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_LT(lines[0].size(), kLongestMessage + kLongestField + 256);
    EXPECT_THAT(lines[0], testing::HasSubstr("... (10000"));
  }
}

TEST(LogTest, JsonStaysValidWhateverIsLogged) {
  for (const std::string& text :
       {std::string("quote \" backslash \\ tab \t line \n"), std::string("\0\x01\x1f\x7f", 4),
        std::string("größe 漢字 🚢"), std::string()}) {
    EXPECT_EQ(LoggedJson(text)["msg"], text);
  }
  const struct {
    std::string bytes, read;
  } broken[] = {
      {"\xff", "\uFFFD"},                                  // never in UTF-8
      {"\xc3", "\uFFFD"},                                  // cut off
      {"\xc0\xaf", "\uFFFD\uFFFD"},                        // overlong
      {"\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},              // a surrogate
      {"\xf4\x90\x80\x80x", "\uFFFD\uFFFD\uFFFD\uFFFDx"},  // beyond Unicode
      {"\xe2\x28\xa1", "\uFFFD(\uFFFD"},
  };
  for (const auto& [bytes, read] : broken) EXPECT_EQ(LoggedJson(bytes)["msg"], read);
}

TEST(LogTest, FieldsAreReadableInTextAndMembersInJson) {
  const auto write = [] {
    FERRY_LOG(info, "peer.up",
              LogFields("peer", "node \"b\"\x1f\n", "incarnation", Incarnation(0xab), "session",
                        SessionId(3), "pid", -1),
              "mapped: {}", "yes");
  };
  const auto text = Logged(LogFormat::kText, "info", write);
  ASSERT_EQ(text.size(), 1u);
  EXPECT_THAT(text[0], testing::EndsWith(R"( I peer.up: mapped: yes peer="node \"b\"\u001f\u000a")"
                                         R"( incarnation="00000000000000ab" session=3 pid=-1)"));
  const auto json = Logged(LogFormat::kJson, "info", write);
  const nlohmann::json line = nlohmann::json::parse(json.at(0));
  EXPECT_EQ(line["event"], "peer.up");
  EXPECT_EQ(line["msg"], "mapped: yes");
  EXPECT_EQ(line["peer"], "node \"b\"\x1f\n");
  EXPECT_EQ(line["incarnation"], "00000000000000ab");
  EXPECT_EQ(line["session"], 3);
  EXPECT_EQ(line["pid"], -1);
}

TEST(LogTest, WhatOthersCauseIsLimitedAndCounted) {
  LogLimit limit;
  for (uint64_t i = 0; i < LogLimit::kBurst; ++i) EXPECT_EQ(limit.Admit(5), std::optional(0ul));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(limit.Admit(6), std::nullopt);
  EXPECT_EQ(limit.Admit(5 + LogLimit::kPeriodNanos), std::optional(50ul));
  EXPECT_EQ(limit.Admit(5 + LogLimit::kPeriodNanos), std::optional(0ul));
  const auto lines = Logged(LogFormat::kText, "info", [] {
    for (int i = 0; i < 60; ++i) FERRY_LOG_LIMITED(warn, "noise", "from pid {}", i);
  });
  EXPECT_GE(lines.size(), LogLimit::kBurst);
  EXPECT_LE(lines.size(), 2 * LogLimit::kBurst + 1);  // if a period has begun meanwhile
}

TEST(LogTest, ALineWithoutEventHasOnlyAMessage) {
  const auto lines = Logged(LogFormat::kJson, "info", [] { spdlog::info("no name"); });
  const nlohmann::json line = nlohmann::json::parse(lines.at(0));
  EXPECT_EQ(line["event"], "");
  EXPECT_EQ(line["msg"], "no name");
}

TEST(LogTest, WritesAndCountsFromItsLevelUp) {
  const uint64_t infos = LogMessages(spdlog::level::info);
  const uint64_t warnings = LogMessages(spdlog::level::warn);
  const auto lines = Logged(LogFormat::kText, "warn", [] {
    FERRY_LOG(info, "quiet", "not seen");
    FERRY_LOG(warn, "loud", "seen");
    EXPECT_TRUE(SetLogLevel("info").ok());
    FERRY_LOG(info, "quiet", "seen now");
  });
  EXPECT_EQ(lines.size(), 2u);
  EXPECT_EQ(LogMessages(spdlog::level::info), infos + 1);
  EXPECT_EQ(LogMessages(spdlog::level::warn), warnings + 1);
}

TEST(LogTest, EveryLevelIsReadBackAndOthersAreRefused) {
  for (const char* level : {"trace", "debug", "info", "warn", "error", "off"}) {
    EXPECT_TRUE(SetLogLevel(level).ok());
    EXPECT_EQ(LogLevel(), level);
  }
  EXPECT_TRUE(HasReason(SetLogLevel("loud"), Reason::kFieldInvalid));
  EXPECT_TRUE(HasReason(ConfigureLog(LogFormat::kText, ""), Reason::kFieldInvalid));
}

// A reader that has stopped holds up nobody; what it misses is counted, and what comes when it
// reads again is whole.
TEST(LogTest, AFullPipeIsNotWaitedFor) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd reader(ends[0]), writer(ends[1]), before(dup(STDERR_FILENO));
  ASSERT_EQ(dup2(writer.get(), STDERR_FILENO), STDERR_FILENO);
  ASSERT_TRUE(ConfigureLog(LogFormat::kText, "info").ok());
  const uint64_t dropped = LogLinesDropped();
  int lines = 0;
  while (LogLinesDropped() == dropped && lines < 1'000'000) {
    FERRY_LOG(info, "an.event", "{} {}", ++lines, std::string(1000, 'x'));
  }
  char text[1 << 16];
  const ssize_t got = read(reader.get(), text, sizeof(text));
  FERRY_LOG(info, "an.event", "again");
  ASSERT_EQ(dup2(before.get(), STDERR_FILENO), STDERR_FILENO);
  EXPECT_EQ(LogLinesDropped(), dropped + 1);
  ASSERT_GT(got, 0);
  EXPECT_EQ(std::count(text, text + got, '\n'), lines - 1);
  const ssize_t more = read(reader.get(), text, sizeof(text));
  ASSERT_GT(more, 0);
  EXPECT_THAT(std::string(text, static_cast<size_t>(more)), testing::EndsWith("an.event: again\n"));
}

TEST(LogTest, AFullDiskIsCounted) {
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC)), before(dup(STDERR_FILENO));
  ASSERT_TRUE(full.valid());
  ASSERT_TRUE(ConfigureLog(LogFormat::kText, "info").ok());
  const uint64_t dropped = LogLinesDropped();
  ASSERT_EQ(dup2(full.get(), STDERR_FILENO), STDERR_FILENO);
  FERRY_LOG(info, "an.event", "lost");
  ASSERT_EQ(dup2(before.get(), STDERR_FILENO), STDERR_FILENO);
  EXPECT_EQ(LogLinesDropped(), dropped + 1);
}

}  // namespace
}  // namespace ferry
