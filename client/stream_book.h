// SPDX-License-Identifier: Apache-2.0
// What one session knows for the sake of streams: where a GPU sees its timelines, and what the
// posted transfers of GPUs wait for, so that a wait that could only end by what this process has
// yet to do is refused (client/stream_hangs.h). Any thread; owned by the session, whose timelines
// outlive it.
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
  ~StreamBook();  // the GPUs forget the pages
  StreamBook(const StreamBook&) = delete;
  StreamBook& operator=(const StreamBook&) = delete;

  // The address of a word of the pages in `context`, which is current.
  StatusPtr DeviceAddress(const void* context, const void* word, const std::string& doing,
                          uint64_t* address);

  // A stream may still be about to look at the pages when the session is gone: they stay.
  void KeepPages();

  // What decides when a transfer starts.
  struct Transfer {
    uint64_t name = 0;  // a hash of all that the two halves have in common
    uint32_t counter = 0;
    uint64_t defined_at = 0;  // of `counter`; 0: it was posted as defined
  };
  // Those of a batch, with ids and values in a row.
  struct Posted {
    uint64_t first_id = 0;
    uint64_t first_value = 0;
    bool receives = false;
    std::vector<Transfer> transfers;
    std::vector<uint64_t> remotes;  // devices
  };
  void Record(const PostBatch& batch, const PostAnswer& answer);
  // Those of `timeline` that are not over and have values up to `value`, the oldest first.
  std::vector<Posted> Open(uint32_t timeline, uint64_t value);

 private:
  // Under mutex_: the GPUs may look at the pages from here on.
  StatusPtr Register(const std::string& doing);

  Timelines* const timelines_;
  std::mutex mutex_;                   // guards what follows
  CUctx_st* registered_in_ = nullptr;  // null: the pages are not registered
  bool keeps_pages_ = false;
  std::map<const void*, uint64_t> pages_;  // by context: where they are
  std::array<std::deque<Posted>, FERRY_TIMELINE_COUNTERS> posted_;
};

}  // namespace ferry::client
