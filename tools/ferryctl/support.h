// SPDX-License-Identifier: Apache-2.0
// Removes from a bug report what is nobody else's business: transfer keys. Pure; any thread.
#pragma once

#include <google/protobuf/message.h>

#include <string>

namespace ferry::tools {

// The text up to a transfer key, if it may name one: a key always follows the word "key".
std::string WithoutKeys(const std::string& text);
// Empties the fields named `key` in the message and all messages in it; other texts become
// WithoutKeys.
void RemoveKeys(google::protobuf::Message& message);

}  // namespace ferry::tools
