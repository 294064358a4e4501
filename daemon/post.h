// SPDX-License-Identifier: Apache-2.0
// A batch of transfers or jobs on its way from daemon/rpc/convert to its session, as plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "compute/dtype.h"
#include "transfer/types.h"

namespace ferry {

// What is wrong with one entry: its field as "buffers[3].ranges[0]", and why.
struct Violation {
  std::string field;
  absl::Status status;
};

// One run of a program, or what is run each time a prepared batch is fired. The rest of it is its
// TransferSpec: the layout's ranges are what is bound.
struct JobSpec {
  struct Binding {
    std::string name;
    std::optional<compute::DType> type;
    std::optional<uint32_t> prepared = std::nullopt;  // the batch that it is transferred by
  };
  struct Transfers {  // of the session
    uint64_t first = 0;
    uint32_t count = 0;
  };
  struct Peer {
    std::string name;
    GlobalDeviceId device;
  };
  std::string fingerprint;
  std::vector<Binding> bindings;  // by range
  // Of a program that sends or receives: whom it names, and what its keys end with this time.
  std::vector<Peer> peers;
  std::string key_suffix;
  Transfers after;  // that are over before it begins, and went well
  Transfers feeds;  // that are poisoned if it fails
  // The 'defined' counter and value that say that it went well; 0: none.
  uint32_t defines_timeline = 0;
  uint64_t defines_value = 0;
};

struct PostBatch {
  Side side = Side::kSend;
  std::string request_id;     // empty: never repeated
  uint64_t request_hash = 0;  // of the whole request, if it has an id
  std::string domain;         // as the client names it, empty: the uid's; completed: its tag
  GlobalDeviceId device;
  uint32_t over_timeline = 0;
  bool prepare = false;
  uint64_t continues = 0;  // a transfer of the session, or none
  // Without domain, absolute deadline and over value, which the session fills in; `defined` says
  // whether no defined_at was given.
  std::vector<TransferSpec> specs;
  std::vector<absl::Duration> deadlines;  // per spec; zero: the daemon's default
  std::vector<Range> extents;             // of prepared transfers: what they touch at most (Union)
  // Runs of programs: as many as `specs`. Sends and receives have none.
  bool runs_programs = false;
  std::vector<JobSpec> jobs;
  // What is wrong, found by whoever looks at the batch; if there is anything it is refused. A
  // bad entry is not looked at any further by the next one who does.
  std::vector<Violation> violations;
  absl::flat_hash_set<size_t> bad_entries;
  absl::Time posted;  // of runs: when they came; their deadlines count from then
  size_t size = 0;    // as it was sent: `specs` may not have been made
};

struct PostReply {
  absl::Status status;  // not OK: refused as a whole, nothing was posted
  std::vector<Violation> violations;
  uint64_t first_transfer_id = 0;
  uint64_t first_over_value = 0;
  uint32_t prepared_batch = 0;
};

// How a request calls range `range` of a buffer's layout, or all its blocks; all its ranges, if the
// layout has others.
std::string FieldOf(size_t buffer, const Layout& layout, size_t range);
// How a request calls what a run binds to one of the program's buffers.
std::string BindingField(size_t run, size_t binding);

// The Status of a batch refused for `violations` (not empty): code and reason of the first.
absl::Status RefusedBatch(const std::vector<Violation>& violations, size_t batch_size);

}  // namespace ferry
