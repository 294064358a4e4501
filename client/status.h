// SPDX-License-Identifier: Apache-2.0
// The library's errors: a StatusPtr is null for success, and becomes the caller's ferry_status at
// the C boundary. Reasons are the daemon's closed list; those that the library gives by itself are
// below. Any thread; owned by whoever holds the pointer; not changed once returned.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/handle.h"
#include "client/include/ferry/ferry.h"

struct ferry_status : ferry::client::Handle<0x7374'6174'7573'0007> {
  int code = 0;
  std::string reason;
  std::string message;
  std::vector<std::pair<std::string, std::string>> violations = {};  // by problem: field, why
  uint64_t retry_after_ns = 0;
};

namespace ferry::client {

using StatusPtr = std::unique_ptr<ferry_status>;

// gRPC's codes, as ferry.h lists them.
enum Code {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
};

// Reasons that the library gives itself; a subset of the closed list.
inline constexpr char kReasonFieldInvalid[] = "FIELD_INVALID";
inline constexpr char kReasonBatchTooLarge[] = "BATCH_TOO_LARGE";
inline constexpr char kReasonDaemonLost[] = "DAEMON_LOST";
inline constexpr char kReasonForked[] = "FORKED";
inline constexpr char kReasonCancelled[] = "CANCELLED";
inline constexpr char kReasonNotReady[] = "NOT_READY";
inline constexpr char kReasonNotAllowed[] = "NOT_ALLOWED";
inline constexpr char kReasonDeviceMemory[] = "DEVICE_MEMORY";
inline constexpr char kReasonDeviceUnknown[] = "DEVICE_UNKNOWN";
inline constexpr char kReasonWouldDeadlock[] = "WOULD_DEADLOCK";
inline constexpr char kReasonRangeInvalid[] = "RANGE_INVALID";
inline constexpr char kReasonIdStale[] = "ID_STALE";
inline constexpr char kReasonTransferNotFound[] = "TRANSFER_NOT_FOUND";
inline constexpr char kReasonProtocol[] = "PROTOCOL_ERROR";
inline constexpr char kReasonProtocolVersion[] = "PROTOCOL_VERSION";
inline constexpr char kReasonQuotaArenas[] = "QUOTA_ARENAS";
inline constexpr char kReasonInternal[] = "INTERNAL";

// An error whose text is: what we were doing, to which ids, then the cause.
StatusPtr Error(Code code, const char* reason, std::string message);
// "doing what: No such file or directory".
StatusPtr ErrnoError(Code code, const char* reason, const std::string& doing, int error);
// FIELD_INVALID: `field`, an argument of the call or a part of one, is bad. `why` continues a
// sentence that begins with the field's name ("is 7, ...").
StatusPtr BadField(const std::string& doing, const std::string& field, const std::string& why,
                   Code code = kInvalidArgument);
// `error`; if it is FIELD_INVALID without a field, it gets `field`. CUDA and older daemons name
// none.
StatusPtr OfField(StatusPtr error, const char* field);
// A field's name in the daemon's message, and the caller's argument that the field was made from.
struct FieldWord {
  std::string_view wire;
  std::string_view argument;
};
// Translates `error` of a call other than a post: fields of the message become the caller's
// arguments. A `wire` name also stands for all fields within it.
StatusPtr InArguments(StatusPtr error, std::initializer_list<FieldWord> words);
// Null if there is a counter of that number; else FIELD_INVALID for `timeline`.
StatusPtr CheckTimeline(const std::string& doing, uint32_t timeline);
inline StatusPtr BadArgument(const char* function, const char* argument, bool null) {
  return BadField(
      function, argument,
      null ? "is a null pointer" : "was freed or closed, or is a handle of something else");
}
StatusPtr Copy(const StatusPtr& status);

}  // namespace ferry::client

#define FERRY_CLIENT_RETURN_IF_ERROR(expression) \
  do {                                           \
    if (auto error = (expression)) return error; \
  } while (false)

// For a function of the C boundary that returns a status: returns BadArgument() if it cannot be
// used.
#define FERRY_CLIENT_NEEDS(argument)                                                             \
  do {                                                                                           \
    if (!::ferry::client::Usable(argument)) [[unlikely]] {                                       \
      return ::ferry::client::BadArgument(__func__, #argument, (argument) == nullptr).release(); \
    }                                                                                            \
  } while (false)
