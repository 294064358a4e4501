// SPDX-License-Identifier: Apache-2.0
// UcxStrays drops the messages of receives that nobody waits for any more, when they come: else
// they would lie in the worker for ever, and their sender would wait. It remembers so many receives
// at most, and forgets the oldest.
//
// Home: the lane. Owner: the channel, of whose worker the messages are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/home.h"
#include "transfer/ucx/ucx_api.h"

namespace ferry {

class UcxStrays {
 public:
  static constexpr size_t kMost = 65536;  // receives

  explicit UcxStrays(const UcxApi& api) : api_(api) {}

  // A receive has ended of which `messages` messages may still come. Does nothing for none.
  void Add(uint64_t tag, size_t messages);
  // Looks for the messages of at most `most` receives. True if one has come.
  bool Drop(ucp_worker_h worker, size_t most);
  // The worker is gone, and its messages with it.
  void Clear();
  size_t size() const { return strays_.size(); }

 private:
  struct Stray {
    uint64_t tag = 0;
    size_t messages = 0;  // messages that may still come
  };

  bool DropMessage(ucp_worker_h worker, uint64_t tag);

  const UcxApi& api_;
  std::deque<Stray> strays_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
