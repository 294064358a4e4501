// SPDX-License-Identifier: Apache-2.0
// Messages of the admin API as JSON, and back. Any thread.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/status.h"

namespace ferry::tools {

// One JSON document, whose fields are named as in the .proto. Numbers are numbers, also those of 64
// bits. Incarnations and fingerprints are texts of hexadecimal digits, as everywhere where people
// see them. Durations and times are texts as protobuf's mapping writes them ("1.5s").
std::string MessageJson(const google::protobuf::Message& message);
// Reads what MessageJson wrote. Fields of a later version are left out. An error begins with
// `what`.
absl::Status FromMessageJson(const std::string& text, google::protobuf::Message* message,
                             const std::string& what);

}  // namespace ferry::tools
