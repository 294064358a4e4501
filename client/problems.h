// SPDX-License-Identifier: Apache-2.0
// What is wrong with a batch, entry by entry, in the words of ferry.h. It holds what the library
// finds before it asks the daemon, and translates what the daemon says in the words of the wire.
// Any thread; lives for one call.
#pragma once

#include <cstddef>
#include <string>

#include "client/codec.h"
#include "client/status.h"

namespace ferry::client {

// "sends", "receives" or "runs": the name of the parameter that has the batch's entries.
const char* EntriesOf(Direction direction);

// Translates `error` of a post from fields of the batch's message to the caller's arguments:
// buffers[0].ranges[1] becomes sends[0].ranges[1], transfer_keys[0] becomes sends[0].key.
StatusPtr InApiWords(const PostBatch& batch, StatusPtr error);

class Problems {
 public:
  // `doing`: how the error's text begins, "posting a batch".
  explicit Problems(const char* doing);

  void Add(std::string field, const std::string& why);
  // `prefix`() + `name` is a pointer to `count` things, and `count_name` is the field with their
  // number. Adds a problem if one is given without the other.
  template <typename Prefix>
  void CheckList(Prefix prefix, const char* name, const void* list, const char* count_name,
                 size_t count) {
    if ((list == nullptr) == (count == 0)) return;
    if (list == nullptr) {
      Add(prefix() + name,
          "is a null pointer, but " + std::string(count_name) + " is " + std::to_string(count));
    } else {
      Add(prefix() + count_name, "is 0, but " + std::string(name) + " is given");
    }
  }
  // Adds a problem if `number` is not one of an enum that goes from 0 to `last`.
  template <typename Name>
  void CheckNumber(Name name, int number, int last) {
    if (number >= 0 && number <= last) return;
    Add(name(), "is " + std::to_string(number) + ", and none has this number: 0 to " +
                    std::to_string(last));
  }
  void CheckOptions(const ferry_post_options& options);

  // The error with all problems; null if there are none. Once.
  StatusPtr Take();

 private:
  StatusPtr error_;
};

}  // namespace ferry::client
