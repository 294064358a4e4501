// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <atomic>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {
namespace {

std::atomic<uint64_t> message_counts[spdlog::level::n_levels];

void AppendJsonString(fmt::string_view text, spdlog::memory_buf_t& out) {
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out.push_back(c);
    }
  }
}

// {"ts":"...","level":"info","event":"session.open","msg":"..."}: the text before the first ": " is
// the event's name, as FERRY_LOG writes it.
class JsonFormatter final : public spdlog::formatter {
 public:
  JsonFormatter() : time_("%Y-%m-%dT%H:%M:%S.%f", spdlog::pattern_time_type::utc, "Z") {}
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    auto append = [&out](fmt::string_view text) { out.append(text.begin(), text.end()); };
    append("{\"ts\":\"");
    spdlog::memory_buf_t time;
    time_.format(message, time);
    out.append(time.begin(), time.end());
    append("\",\"level\":\"");
    const auto level = spdlog::level::to_string_view(message.level);
    out.append(level.begin(), level.end());
    const fmt::string_view text(message.payload.data(), message.payload.size());
    size_t colon = 0;
    while (colon + 1 < text.size() && !(text[colon] == ':' && text[colon + 1] == ' ')) ++colon;
    append("\",\"event\":\"");
    AppendJsonString({text.data(), colon}, out);
    append("\",\"msg\":\"");
    const size_t body = std::min(colon + 2, text.size());
    AppendJsonString({text.data() + body, text.size() - body}, out);
    append("\"}\n");
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }

 private:
  spdlog::pattern_formatter time_;
};

}  // namespace

absl::Status ConfigureLog(LogFormat format, const std::string& level) {
  auto logger = std::make_shared<spdlog::logger>(
      "ferry", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  if (format == LogFormat::kJson) {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%f %L %v", spdlog::pattern_time_type::utc);
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
  return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
               absl::StrCat("log level '", level,
                            "' is not one of trace, debug, info, warn, error, off"));
}

std::string LogLevel() {
  const auto name = spdlog::level::to_string_view(spdlog::get_level());
  const std::string text(name.data(), name.size());
  return text == "warning" ? "warn" : text;
}

uint64_t LogMessages(int level) { return message_counts[level].load(std::memory_order_relaxed); }
void CountLogMessage(int level) { message_counts[level].fetch_add(1, std::memory_order_relaxed); }

}  // namespace ferry
