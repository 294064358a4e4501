// SPDX-License-Identifier: Apache-2.0
// How errors are made and passed on. A Status that may reach a client carries a Reason. The ids
// that its text names are in its metadata too, so that programs need not read prose. Any thread.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/reason.h"

namespace ferry {

using Metadata = std::map<std::string, std::string>;

// An error of `code` with `reason`. The text says what was being done, to which ids, then the
// cause.
absl::Status Error(absl::StatusCode code, Reason reason, absl::string_view text,
                   const Metadata& metadata = {});

// The reason that `status` carries; kInternal if it carries none.
Reason ReasonOf(const absl::Status& status);
bool HasReason(const absl::Status& status, Reason reason);
Metadata MetadataOf(const absl::Status& status);

// Adds to `status` after what time the same call is worth another try. It stays through Annotate
// and over the wire.
absl::Status WithRetryAfter(absl::Status status, absl::Duration after);
// Zero if `status` does not say.
absl::Duration RetryAfterOf(const absl::Status& status);

// The same code, reason and metadata with another text. OK stays OK.
absl::Status WithText(const absl::Status& status, absl::string_view text);
// Puts `prefix: ` before the text.
absl::Status Annotate(const absl::Status& status, absl::string_view prefix);

// An error made of an errno: "doing what: No such file or directory".
absl::Status ErrnoError(absl::StatusCode code, Reason reason, absl::string_view doing, int error);

}  // namespace ferry

#define FERRY_CONCAT_INNER(a, b) a##b
#define FERRY_CONCAT(a, b) FERRY_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expression)                                                        \
  do {                                                                                     \
    if (absl::Status ferry_status = (expression); !ferry_status.ok()) return ferry_status; \
  } while (false)

#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_INNER(FERRY_CONCAT(ferry_statusor_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_INNER(temporary, declaration, expression) \
  auto temporary = (expression);                                   \
  if (!temporary.ok()) return std::move(temporary).status();       \
  declaration = *std::move(temporary)
