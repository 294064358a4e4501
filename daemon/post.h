// SPDX-License-Identifier: Apache-2.0
// A batch of transfers on its way from daemon/rpc/convert to its session, as plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "transfer/types.h"

namespace ferry {

// What is wrong with one entry: its field as "buffers[3].ranges[0]", and why.
struct Violation {
  std::string field;
  absl::Status status;
};

struct PostBatch {
  Side side = Side::kSend;
  std::string request_id;     // empty: never repeated
  uint64_t request_hash = 0;  // of the whole request, if it has an id
  std::string domain;         // empty: the uid's
  GlobalDeviceId device;
  uint32_t over_timeline = 0;
  bool prepare = false;
  // Without domain, absolute deadline and over value, which the session fills in; `defined` says
  // whether no defined_at was given.
  std::vector<TransferSpec> specs;
  std::vector<absl::Duration> deadlines;  // per spec; zero: the daemon's default
  // What is wrong, found by whoever looks at the batch; if there is anything it is refused. A
  // bad entry is not looked at any further by the next one who does.
  std::vector<Violation> violations;
  absl::flat_hash_set<size_t> bad_entries;
  size_t size = 0;  // as it was sent: `specs` may not have been made
};

struct PostReply {
  absl::Status status;  // not OK: refused as a whole, nothing was posted
  std::vector<Violation> violations;
  uint64_t first_transfer_id = 0;
  uint64_t first_over_value = 0;
  uint32_t prepared_batch = 0;
};

// How a request calls range `range` of a buffer's layout, or all its blocks.
std::string FieldOf(size_t buffer, const Layout& layout, size_t range);

// The Status of a batch refused for `violations` (not empty): code and reason of the first.
absl::Status RefusedBatch(const std::vector<Violation>& violations, size_t batch_size);

}  // namespace ferry
