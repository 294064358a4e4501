// SPDX-License-Identifier: Apache-2.0
// What one session records for the sake of streams: where a GPU sees the session's timelines, and
// what the posted transfers of GPUs wait for. With the latter a wait is refused that could only end
// by something that this process has yet to do (client/stream_hangs.h). Any thread; owned by the
// session, whose timelines outlive it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "client/codec.h"
#include "client/timelines.h"

struct CUctx_st;  // what a CUcontext points to

namespace ferry::client {

class StreamBook {
 public:
  explicit StreamBook(Timelines* timelines) : timelines_(timelines) {}
  ~StreamBook();  // unregisters the pages
  StreamBook(const StreamBook&) = delete;
  StreamBook& operator=(const StreamBook&) = delete;

  // The address, in `context`, of a word of the pages. `context` must be current.
  StatusPtr DeviceAddress(const void* context, const void* word, const std::string& doing,
                          uint64_t* address);

  // The pages stay registered and mapped for good: a stream may look at them after the session is
  // gone.
  void KeepPages();

  // What decides when a transfer starts.
  struct Transfer {
    uint64_t name = 0;  // a hash of all that the two halves have in common
    uint32_t counter = 0;
    uint64_t defined_at = 0;  // of `counter`; 0: it was posted as defined
  };
  // The transfers of a batch, with consecutive ids and values.
  struct Posted {
    uint64_t first_id = 0;
    uint64_t first_value = 0;
    bool receives = false;
    std::vector<Transfer> transfers;
    std::vector<uint64_t> remotes;  // the transfers' remote devices
  };
  void Record(const PostBatch& batch, const PostAnswer& answer);
  // The batches of `timeline` that are not over and have values up to `value`, the oldest first.
  std::vector<Posted> Open(uint32_t timeline, uint64_t value);

 private:
  // Under mutex_: registers the pages with CUDA, so that GPUs may use them.
  StatusPtr Register(const std::string& doing);

  Timelines* const timelines_;
  std::mutex mutex_;                   // guards what follows
  CUctx_st* registered_in_ = nullptr;  // null: the pages are not registered
  bool keeps_pages_ = false;
  std::map<const void*, uint64_t> pages_;  // by context: the pages' address there
  std::array<std::deque<Posted>, FERRY_TIMELINE_COUNTERS> posted_;
};

}  // namespace ferry::client
