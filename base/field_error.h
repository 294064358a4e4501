// SPDX-License-Identifier: Apache-2.0
// Errors of a request that say which of its fields they are about, as the message calls it: on the
// wire that is google.rpc.BadRequest, by which clients name their own argument. Any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace ferry {

inline constexpr char kFieldMetadata[] = "field";

// FIELD_INVALID, of `field`.
inline absl::Status FieldError(absl::string_view field, absl::string_view text,
                               absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  return Error(code, Reason::kFieldInvalid, text, {{kFieldMetadata, std::string(field)}});
}

// `status`; if it is FIELD_INVALID and does not say of what, it is of `field`: what looks at
// descriptors and memory does not know how a message calls them.
inline absl::Status OfField(absl::Status status, absl::string_view field) {
  if (!HasReason(status, Reason::kFieldInvalid)) return status;
  Metadata metadata = MetadataOf(status);
  if (!metadata.emplace(kFieldMetadata, field).second) return status;
  return Error(status.code(), Reason::kFieldInvalid, status.message(), metadata);
}

}  // namespace ferry
