// SPDX-License-Identifier: Apache-2.0
#include "client/status.h"

#include <algorithm>
#include <system_error>

#include "base/limit_text.h"
#include "proto/ferry/v1/timeline_layout.h"

namespace ferry::client {

StatusPtr Error(Code code, const char* reason, std::string message) {
  return StatusPtr(new ferry_status{{}, code, reason, std::move(message)});
}

StatusPtr ErrnoError(Code code, const char* reason, const std::string& doing, int error) {
  return Error(code, reason,
               doing + ": " + std::generic_category().message(error) + LimitText(error));
}

StatusPtr BadField(const std::string& doing, const std::string& field, const std::string& why,
                   Code code) {
  StatusPtr error = Error(code, kReasonFieldInvalid, doing + ": " + field + " " + why);
  error->violations.emplace_back(field, why);
  return error;
}

StatusPtr OfField(StatusPtr error, const char* field) {
  if (error != nullptr && error->reason == kReasonFieldInvalid && error->violations.empty()) {
    error->violations.emplace_back(field, error->message);
  }
  return error;
}

StatusPtr InArguments(StatusPtr error, std::initializer_list<FieldWord> words) {
  if (error == nullptr) return error;
  for (auto& [field, why] : error->violations) {
    for (const FieldWord& word : words) {
      const std::string_view name = field;
      const std::string_view rest = name.substr(std::min(name.size(), word.wire.size()));
      if (name.substr(0, word.wire.size()) != word.wire) continue;
      if (!rest.empty() && rest.front() != '[' && rest.front() != '.') continue;
      field = word.argument;
      break;
    }
  }
  return error;
}

StatusPtr CheckTimeline(const std::string& doing, uint32_t timeline) {
  if (timeline < FERRY_TIMELINE_COUNTERS) return nullptr;
  return BadField(doing, "timeline",
                  "is " + std::to_string(timeline) + ", and counters are numbered 0 to " +
                      std::to_string(FERRY_TIMELINE_COUNTERS - 1));
}

StatusPtr Copy(const StatusPtr& status) {
  return status ? StatusPtr(new ferry_status(*status)) : nullptr;
}

namespace {

// `status`; if it was freed, a status that says so.
const ferry_status* Readable(const ferry_status* status) {
  if (status == nullptr || Usable(status)) return status;
  static const ferry_status* const freed = BadArgument("ferry_status", "status", false).release();
  return freed;
}

}  // namespace
}  // namespace ferry::client

extern "C" {

using ferry::client::Readable;

int ferry_status_code(const ferry_status* status) {
  status = Readable(status);
  return status ? status->code : 0;
}

const char* ferry_status_code_name(const ferry_status* status) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  const unsigned code = static_cast<unsigned>(ferry_status_code(status));
  return code < sizeof(kNames) / sizeof(kNames[0]) ? kNames[code] : "UNKNOWN";
}

const char* ferry_status_reason(const ferry_status* status) {
  status = Readable(status);
  return status ? status->reason.c_str() : "";
}

const char* ferry_status_message(const ferry_status* status) {
  status = Readable(status);
  return status ? status->message.c_str() : "";
}

size_t ferry_status_violations(const ferry_status* status) {
  status = Readable(status);
  return status ? status->violations.size() : 0;
}

const char* ferry_status_violation_field(const ferry_status* status, size_t index) {
  status = Readable(status);
  return index < ferry_status_violations(status) ? status->violations[index].first.c_str() : "";
}

const char* ferry_status_violation_text(const ferry_status* status, size_t index) {
  status = Readable(status);
  return index < ferry_status_violations(status) ? status->violations[index].second.c_str() : "";
}

uint64_t ferry_status_retry_after_ns(const ferry_status* status) {
  status = Readable(status);
  return status ? status->retry_after_ns : 0;
}

void ferry_status_free(ferry_status* status) {
  if (ferry::client::Usable(status)) delete status;
}

const char* ferry_version(void) { return FERRY_VERSION; }

}  // extern "C"
