// SPDX-License-Identifier: Apache-2.0
// A table of UCX whose one worker has messages that have come, by tag. One at a time in a process.
#pragma once

#include <cstdint>
#include <map>

#include "transfer/ucx/ucx_api.h"

namespace ferry {

class FakeUcxWorker {
 public:
  FakeUcxWorker() {
    live_ = this;
    api_.ucp_tag_probe_nb = [](ucp_worker_h, ucp_tag_t tag, ucp_tag_t, int remove,
                               ucp_tag_recv_info_t*) -> ucp_tag_message_h {
      const auto found = live_->come_.find(tag);
      if (found == live_->come_.end()) return nullptr;
      if (remove != 0 && --found->second == 0) live_->come_.erase(found);
      return reinterpret_cast<ucp_tag_message_h>(live_);
    };
    api_.ucp_tag_msg_recv_nbx = [](ucp_worker_h, void*, size_t count, ucp_tag_message_h,
                                   const ucp_request_param_t* param) -> ucs_status_ptr_t {
      live_->dropped_ += count == 0;
      param->cb.recv(live_, UCS_OK, nullptr, param->user_data);
      return nullptr;
    };
    api_.ucp_request_free = [](void*) { ++live_->freed_; };
  }
  ~FakeUcxWorker() { live_ = nullptr; }

  void Come(uint64_t tag, int messages) { come_[tag] += messages; }
  bool empty() const { return come_.empty(); }
  int dropped() const { return dropped_; }  // messages that were received into no bytes
  int freed() const { return freed_; }      // requests
  const UcxApi& api() const { return api_; }

 private:
  static inline FakeUcxWorker* live_ = nullptr;
  UcxApi api_;
  std::map<uint64_t, int> come_;
  int dropped_ = 0;
  int freed_ = 0;
};

}  // namespace ferry
