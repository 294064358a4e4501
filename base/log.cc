// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <limits.h>
#include <poll.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/status.h"

namespace ferry {
namespace {

std::atomic<uint64_t> message_counts[spdlog::level::n_levels];
std::atomic<uint64_t> dropped_lines;

// Bytes of the UTF-8 character that `text` begins with; 0 if it begins with none.
size_t Utf8Length(fmt::string_view text) {
  const auto byte = [&text](size_t i) { return static_cast<unsigned char>(text.data()[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool surrogate = first == 0xed && second > 0x9f;
  const bool too_large = first == 0xf4 && second > 0x8f;
  return overlong || surrogate || too_large ? 0 : length;
}

// Escapes a text for the inside of a JSON string. Callers' texts may hold any byte; the line stays
// one line, and valid.
void AppendJsonString(fmt::string_view text, spdlog::memory_buf_t& out) {
  while (text.size() > 0) {
    const char c = *text.data();
    size_t length = Utf8Length(text);
    if (length == 0) {
      const fmt::string_view replacement = "\\ufffd";
      out.append(replacement.begin(), replacement.end());
      length = 1;
    } else if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned char>(c));
    } else if (c == '\xc2' && static_cast<unsigned char>(text.data()[1]) < 0xa0) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}",
                     static_cast<unsigned char>(text.data()[1]));
    } else {
      out.append(text.data(), text.data() + length);
    }
    text = {text.data() + length, text.size() - length};
  }
}

// One event, one line, and nothing that a terminal obeys: controls of ASCII and of Latin-1
// (U+0080 to U+009F), and bytes that are no UTF-8, are written out.
void AppendPlain(absl::string_view text, spdlog::memory_buf_t& out) {
  while (!text.empty()) {
    const unsigned char first = static_cast<unsigned char>(text[0]);
    size_t length = Utf8Length({text.data(), text.size()});
    const bool control =
        first < 0x20 || first == 0x7f ||
        (first == 0xc2 && length == 2 && static_cast<unsigned char>(text[1]) < 0xa0);
    if (control || length == 0) {
      length = std::max<size_t>(length, 1);
      for (const char c : text.substr(0, length)) {
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
      }
    } else {
      out.append(text.data(), text.data() + length);
    }
    text.remove_prefix(length);
  }
}

// `text`, or its beginning and how long it was.
std::string Bounded(absl::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  return absl::StrCat(text.substr(0, most), "... (", text.size(), " bytes)");
}

// A payload is what LogLine made. Calls each(name, json) for every field and returns the rest.
template <typename Each>
absl::string_view SplitPayload(const spdlog::details::log_msg& message, Each each) {
  absl::string_view text(message.payload.data(), message.payload.size());
  if (text.empty() || text[0] != LogFields::kMark) return text;
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(text, absl::MaxSplits(LogFields::kEnd, 1));
  const std::vector<absl::string_view> parts = absl::StrSplit(halves.first, LogFields::kMark);
  for (size_t i = 1; i + 1 < parts.size(); i += 2) each(parts[i], parts[i + 1]);
  return halves.second;
}

// The level's name as SetLogLevel takes it; spdlog itself says "warning".
const char* LevelName(spdlog::level::level_enum level) {
  constexpr const char* kNames[] = {"trace", "debug", "info", "warn", "error", "critical", "off"};
  return kNames[level];
}

constexpr char kTimePattern[] = "%Y-%m-%dT%H:%M:%S.%f";

// 2026-01-02T03:04:05.678901Z I session.open: client 0.1.0 session=3 uid=1000 name="trainer"
class TextFormatter final : public spdlog::formatter {
 public:
  TextFormatter()
      : prefix_(std::string(kTimePattern) + "Z %L ", spdlog::pattern_time_type::utc, "") {}
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    prefix_.format(message, out);
    std::string fields;
    const absl::string_view line =
        SplitPayload(message, [&](absl::string_view name, absl::string_view value) {
          absl::StrAppend(&fields, " ", name, "=", value);
        });
    AppendPlain(Bounded(line, kLongestMessage), out);
    out.append(fields.data(), fields.data() + fields.size());
    out.push_back('\n');
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<TextFormatter>();
  }

 private:
  spdlog::pattern_formatter prefix_;
};

// {"ts":"...","level":"info","event":"session.open","session":3,"msg":"..."}: the text before the
// first ": " is the event's name, as FERRY_LOG writes it; a line without one has no event.
class JsonFormatter final : public spdlog::formatter {
 public:
  JsonFormatter() : time_(kTimePattern, spdlog::pattern_time_type::utc, "Z") {}
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    auto append = [&out](fmt::string_view text) { out.append(text.begin(), text.end()); };
    append("{\"ts\":\"");
    spdlog::memory_buf_t time;
    time_.format(message, time);
    out.append(time.begin(), time.end());
    append("\",\"level\":\"");
    append(LevelName(message.level));
    std::string fields;
    const absl::string_view text =
        SplitPayload(message, [&](absl::string_view name, absl::string_view value) {
          absl::StrAppend(&fields, ",\"", name, "\":", value);
        });
    constexpr absl::string_view kColon = ": ";
    const size_t colon = text.find(kColon);
    const bool named = colon != absl::string_view::npos;
    append("\",\"event\":\"");
    AppendJsonString({text.data(), named ? colon : 0}, out);
    append("\"");
    append(fields);
    append(",\"msg\":\"");
    const size_t body = named ? colon + kColon.size() : 0;
    AppendJsonString(Bounded(text.substr(body), kLongestMessage), out);
    append("\"}\n");
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }

 private:
  spdlog::pattern_formatter time_;
};

// Writes to stderr and never waits for it: the control thread may be logging, and whoever reads the
// log may have stopped. Lines that cannot be written at once (a full pipe, a full disk) are dropped
// and counted.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    if (!Write(line.data(), line.size())) dropped_lines.fetch_add(1, std::memory_order_relaxed);
  }
  void flush_() override {}

 private:
  static bool Write(const char* text, size_t size) {
    while (size > 0) {
      // A pipe that is ready takes PIPE_BUF bytes without blocking.
      pollfd ready{STDERR_FILENO, POLLOUT, 0};
      if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return false;
      const ssize_t wrote = write(STDERR_FILENO, text, std::min<size_t>(size, PIPE_BUF));
      if (wrote <= 0) return false;
      text += wrote;
      size -= static_cast<size_t>(wrote);
    }
    return true;
  }
};

}  // namespace

void LogFields::AddJson(const char* name, const std::string& json) {
  encoded_.push_back(kMark);
  encoded_.append(name);
  encoded_.push_back(kMark);
  encoded_.append(json);
}

void LogFields::AddOne(const char* name, absl::string_view text) {
  spdlog::memory_buf_t escaped;
  AppendJsonString(Bounded(text, kLongestField), escaped);
  AddJson(name, absl::StrCat("\"", absl::string_view(escaped.data(), escaped.size()), "\""));
}

void LogFields::AddOne(const char* name, Incarnation incarnation) {
  AddOne(name, absl::StrCat(absl::Hex(incarnation.value(), absl::kZeroPad16)));
}

std::optional<uint64_t> LogLimit::Admit(int64_t now_nanos) {
  const int64_t period = now_nanos / kPeriodNanos;
  uint64_t left_out = 0;
  if (period_.exchange(period) != period) {
    const uint64_t before = seen_.exchange(0);
    left_out = before > kBurst ? before - kBurst : 0;
  }
  if (seen_.fetch_add(1) >= kBurst) return std::nullopt;
  return left_out;
}

std::optional<uint64_t> LogLimit::Admit() {
  return Admit(absl::ToInt64Nanoseconds(absl::Now() - absl::UnixEpoch()));
}

absl::Status ConfigureLog(LogFormat format, const std::string& level) {
  auto logger = std::make_shared<spdlog::logger>("ferry", std::make_shared<StderrSink>());
  if (format == LogFormat::kJson) {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    logger->set_formatter(std::make_unique<TextFormatter>());
  }
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  return SetLogLevel(level);
}

absl::Status SetLogLevel(const std::string& level) {
  for (const char* known : {"trace", "debug", "info", "warn", "error", "off"}) {
    if (level == known) {
      spdlog::set_level(spdlog::level::from_str(level));
      return absl::OkStatus();
    }
  }
  return Error(
      absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
      absl::StrCat("log level '", level, "' is not one of trace, debug, info, warn, error, off"));
}

std::string LogLevel() { return LevelName(spdlog::get_level()); }

uint64_t LogMessages(int level) { return message_counts[level].load(std::memory_order_relaxed); }
uint64_t LogLinesDropped() { return dropped_lines.load(std::memory_order_relaxed); }
void CountLogMessage(int level) { message_counts[level].fetch_add(1, std::memory_order_relaxed); }

}  // namespace ferry
