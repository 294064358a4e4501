// SPDX-License-Identifier: Apache-2.0
// What a bug report takes from a node, without what is nobody else's business. Pure; any thread.
#pragma once

#include <google/protobuf/message.h>

#include <string>

namespace ferry::tools {

// A text in which a key may be named, up to that: keys always follow the word.
std::string WithoutKeys(const std::string& text);
// Of the message and all in it: fields named `key` are emptied, and other texts are WithoutKeys.
void RemoveKeys(google::protobuf::Message& message);

}  // namespace ferry::tools
