// SPDX-License-Identifier: Apache-2.0
// One event, one line: FERRY_LOG(info, "session.open", "session {} uid {}", id, uid). The first
// text is the event's stable name; the severities are trace, debug, info, warn and err. Nothing per
// transfer above debug. Any thread.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

#include "absl/status/status.h"

namespace ferry {

enum class LogFormat { kText, kJson };

// Logs to stderr from now on. `level`: trace, debug, info, warn, error, off.
absl::Status ConfigureLog(LogFormat format, const std::string& level);
absl::Status SetLogLevel(const std::string& level);
std::string LogLevel();

// Messages written so far at each spdlog level, for the metrics.
uint64_t LogMessages(int level);
void CountLogMessage(int level);

}  // namespace ferry

#define FERRY_LOG(severity, event, ...)                                                \
  do {                                                                                 \
    if (spdlog::should_log(spdlog::level::severity)) {                                 \
      ::ferry::CountLogMessage(static_cast<int>(spdlog::level::severity));             \
      spdlog::log(spdlog::level::severity, "{}: {}", event, fmt::format(__VA_ARGS__)); \
    }                                                                                  \
  } while (false)
