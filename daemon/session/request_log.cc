// SPDX-License-Identifier: Apache-2.0
#include "daemon/session/request_log.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {

std::optional<PostReply> RequestLog::Find(const PostBatch& batch) const {
  home_.Check();
  if (batch.request_id.empty()) return std::nullopt;
  auto it = requests_.find(batch.request_id);
  if (it == requests_.end()) return std::nullopt;
  if (it->second.hash == batch.request_hash) return it->second.reply;
  PostReply refused;
  refused.status = Error(absl::StatusCode::kAlreadyExists, Reason::kRequestIdReused,
                         absl::StrCat("request id ", PrintableKey(batch.request_id),
                                      " was used before with another batch"));
  return refused;
}

void RequestLog::Remember(const PostBatch& batch, const PostReply& reply) {
  home_.Check();
  if (batch.request_id.empty()) return;
  if (order_.size() == kRequestsKept) {
    requests_.erase(order_.front());
    order_.pop_front();
  }
  requests_[batch.request_id] = {batch.request_hash, reply};
  order_.push_back(batch.request_id);
}

}  // namespace ferry
