// SPDX-License-Identifier: Apache-2.0
// Messages of the admin API as JSON. Any thread.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/status.h"

namespace ferry::tools {

// The message as one JSON document, fields named as in the .proto. Numbers are numbers, of 64 bits
// too; incarnations and fingerprints are texts of hexadecimal digits, as everywhere people meet
// them; durations and times are texts as protobuf's mapping has them ("1.5s").
std::string MessageJson(const google::protobuf::Message& message);
// Reads what MessageJson wrote; fields of a later version are left out. `what` begins the error.
absl::Status FromMessageJson(const std::string& text, google::protobuf::Message* message,
                             const std::string& what);

}  // namespace ferry::tools
