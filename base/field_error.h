// SPDX-License-Identifier: Apache-2.0
// Errors of a request that name the field they are about, as the message calls it. On the wire the
// name is in google.rpc.BadRequest; clients translate it to their own argument. Any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace ferry {

inline constexpr char kFieldMetadata[] = "field";

// An error FIELD_INVALID about `field`.
inline absl::Status FieldError(absl::string_view field, absl::string_view text,
                               absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  return Error(code, Reason::kFieldInvalid, text, {{kFieldMetadata, std::string(field)}});
}

// Names `field` in `status` if it is FIELD_INVALID and names no field yet; else returns `status`.
// For code that checks descriptors and memory and does not know what a message calls them.
inline absl::Status OfField(absl::Status status, absl::string_view field) {
  if (!HasReason(status, Reason::kFieldInvalid)) return status;
  Metadata metadata = MetadataOf(status);
  if (!metadata.emplace(kFieldMetadata, field).second) return status;
  return Error(status.code(), Reason::kFieldInvalid, status.message(), metadata);
}

}  // namespace ferry
