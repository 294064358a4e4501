// SPDX-License-Identifier: Apache-2.0
// What is wrong with a batch, entry by entry, in the words of ferry.h: as the library finds it
// before it asks the daemon, and as the daemon says it, whose words are the wire's. Any thread;
// lives for one call.
#pragma once

#include <cstddef>
#include <string>

#include "client/codec.h"
#include "client/status.h"

namespace ferry::client {

// "sends", "receives" or "runs": the parameter that the batch's entries are.
const char* EntriesOf(Direction direction);

// `error` of a post, which names fields of the batch's message, names those of its arguments:
// buffers[0].ranges[1] was sends[0].ranges[1], transfer_keys[0] was sends[0].key.
StatusPtr InApiWords(const PostBatch& batch, StatusPtr error);

class Problems {
 public:
  // `doing` as errors begin: "posting a batch".
  explicit Problems(const char* doing);

  void Add(std::string field, const std::string& why);
  // `prefix`() + `name` is a pointer to `count` of something, and that is in its field
  // `count_name`: none is given without the other.
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
  // Of an enum that begins with 0 and has `last` as its last.
  template <typename Name>
  void CheckNumber(Name name, int number, int last) {
    if (number >= 0 && number <= last) return;
    Add(name(), "is " + std::to_string(number) + ", and none has this number: 0 to " +
                    std::to_string(last));
  }
  void CheckOptions(const ferry_post_options& options);

  // Null if there were none. Once.
  StatusPtr Take();

 private:
  StatusPtr error_;
};

}  // namespace ferry::client
