// SPDX-License-Identifier: Apache-2.0
// The answers to the last kRequestsKept posts of one session that have a request id, so that a
// client that repeats a post gets the same answer, and nothing is posted twice. Refuses a request
// id that comes again with another batch. Home: control. Owner: Session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/home.h"
#include "daemon/post.h"

namespace ferry {

class RequestLog {
 public:
  static constexpr size_t kRequestsKept = 1024;

  // The answer that was given to the same request id before; a refusal if the content differs
  // (PostBatch::request_hash); nothing if the id is new, forgotten, or empty.
  std::optional<PostReply> Find(const PostBatch& batch) const;
  // Does nothing if the request id is empty. The id must be new, see Find.
  void Remember(const PostBatch& batch, const PostReply& reply);

 private:
  struct Request {
    uint64_t hash = 0;
    PostReply reply;
  };
  absl::flat_hash_map<std::string, Request> requests_;
  std::deque<std::string> order_;  // the ids in `requests_`, the oldest first
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
