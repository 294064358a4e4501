// SPDX-License-Identifier: Apache-2.0
// Logs one event as one line: FERRY_LOG(info, "session.open", LogFields("session", id, "uid", uid),
// "client {}", version). The first text is the event's stable name. LogFields are what programs
// look for: key="value" in text, members in JSON. The rest is a message for people. The severities
// are trace, debug, info, warn and err.
//
// Nothing is logged for each transfer above debug. What others can cause at will is logged with
// FERRY_LOG_LIMITED. Texts that others chose may be long and hold any byte: at most kLongestMessage
// bytes of a message and kLongestField bytes of a field are written, and nothing that a terminal
// would obey. Any thread.
#pragma once

#include <spdlog/spdlog.h>

#include <atomic>
#include <concepts>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace ferry {

enum class LogFormat { kText, kJson };

inline constexpr size_t kLongestMessage = 16'384;
inline constexpr size_t kLongestField = 1'024;

// Logs to stderr from now on. No thread ever waits for stderr: lines that it does not take at once
// are dropped. `level`: trace, debug, info, warn, error or off.
absl::Status ConfigureLog(LogFormat format, const std::string& level);
absl::Status SetLogLevel(const std::string& level);
std::string LogLevel();

// Takes names and values by turns; a value is an integer, an id or a text.
class LogFields {
 public:
  template <typename... Pairs>
  explicit LogFields(const Pairs&... pairs) {
    Add(pairs...);
  }
  // Names and JSON values, each after a kMark; no value contains a mark.
  const std::string& encoded() const { return encoded_; }
  static constexpr char kMark = '\x1f';
  static constexpr char kEnd = '\x1e';  // between the fields and the rest of a line

 private:
  void Add() {}
  template <typename Value, typename... Rest>
  void Add(const char* name, const Value& value, const Rest&... rest) {
    AddOne(name, value);
    Add(rest...);
  }
  template <std::integral Value>
  void AddOne(const char* name, Value value) {
    AddJson(name, std::to_string(value));
  }
  template <typename Tag, typename Value>
  void AddOne(const char* name, Id<Tag, Value> id) {
    AddOne(name, id.value());
  }
  void AddOne(const char* name, Incarnation incarnation);
  void AddOne(const char* name, absl::string_view text);
  void AddJson(const char* name, const std::string& json);
  std::string encoded_;
};

// Lets kBurst events through in each period and counts the others. Any thread.
class LogLimit {
 public:
  static constexpr uint64_t kBurst = 10;
  static constexpr int64_t kPeriodNanos = 10'000'000'000;
  // How many events were left out before this one; nothing if this one must be left out too.
  std::optional<uint64_t> Admit(int64_t now_nanos);
  std::optional<uint64_t> Admit();

 private:
  std::atomic<int64_t> period_ = -1;
  std::atomic<uint64_t> seen_ = 0;  // events in this period
};

// Joins the parts of a line into one text for spdlog.
template <typename... Args>
std::string LogLine(const char* event, fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format("{}: {}", event, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
std::string LogLine(const char* event, const LogFields& fields, fmt::format_string<Args...> format,
                    Args&&... args) {
  return fields.encoded() + LogFields::kEnd + LogLine(event, format, std::forward<Args>(args)...);
}

// For the metrics: how many messages there were at each spdlog level, and how many lines stderr did
// not take.
uint64_t LogMessages(int level);
uint64_t LogLinesDropped();
void CountLogMessage(int level);

}  // namespace ferry

#define FERRY_LOG(severity, event, ...)                                           \
  do {                                                                            \
    if (spdlog::should_log(spdlog::level::severity)) {                            \
      ::ferry::CountLogMessage(static_cast<int>(spdlog::level::severity));        \
      spdlog::log(spdlog::level::severity, ::ferry::LogLine(event, __VA_ARGS__)); \
    }                                                                             \
  } while (false)

// FERRY_LOG for what strangers can cause: at most LogLimit::kBurst lines in a period from this
// place in the code. The next line says how many were left out.
#define FERRY_LOG_LIMITED(severity, event, ...)                                          \
  do {                                                                                   \
    static ::ferry::LogLimit ferry_limit;                                                \
    if (std::optional<uint64_t> left_out = ferry_limit.Admit()) {                        \
      if (*left_out > 0) FERRY_LOG(severity, event, "{} more were left out", *left_out); \
      FERRY_LOG(severity, event, __VA_ARGS__);                                           \
    }                                                                                    \
  } while (false)
