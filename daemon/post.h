// SPDX-License-Identifier: Apache-2.0
// A batch of transfers or jobs as plain data, on its way from daemon/rpc/convert to its session;
// and the answer to it. A value.
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

// What is wrong with one entry of a batch: the name of its field, such as "buffers[3].ranges[0]",
// and why.
struct Violation {
  std::string field;
  absl::Status status;
};

// What one entry of a batch of jobs has beside its TransferSpec: one run of a program, or the run
// that each firing of a prepared batch repeats. The ranges of the spec's layout are the memory that
// is bound.
struct JobSpec {
  struct Binding {
    std::string name;
    std::optional<compute::DType> type;
    // Number of the prepared batch that transfers this buffer.
    std::optional<uint32_t> prepared = std::nullopt;
  };
  struct Transfers {  // consecutive transfers of the session
    uint64_t first = 0;
    uint32_t count = 0;
  };
  struct Peer {
    std::string name;
    GlobalDeviceId device;
  };
  std::string fingerprint;
  std::vector<Binding> bindings;  // by range
  // For a program that sends or receives: the devices behind its peer names, and the end of the
  // keys of its transfers in this run.
  std::vector<Peer> peers;
  std::string key_suffix;
  Transfers after;  // they must be over, and have gone well, before the run begins
  Transfers feeds;  // they are poisoned if the run fails
  // The 'defined' counter, and the value stored in it when the run has gone well; timeline 0: none.
  uint32_t defines_timeline = 0;
  uint64_t defines_value = 0;
};

struct PostBatch {
  Side side = Side::kSend;
  std::string request_id;     // empty: the request is never repeated
  uint64_t request_hash = 0;  // hash of the whole request; 0 without a request id
  // The name that the client gives, empty: the uid's; after CheckAndComplete: its tag
  std::string domain;
  GlobalDeviceId device;
  uint32_t over_timeline = 0;
  bool prepare = false;
  uint64_t continues = 0;  // a transfer of the session that this batch belongs to; 0: none
  // Without domain, absolute deadline and 'over' value: the session fills them in. `defined` is
  // true if the client gave no defined_at.
  std::vector<TransferSpec> specs;
  std::vector<absl::Duration> deadlines;  // by spec; zero: the daemon's default
  std::vector<Range> extents;  // for prepared transfers: the extents of all their layouts (Union)
  // If true, `jobs` has an entry for each of `specs`. Else the batch is of sends or receives, and
  // `jobs` is empty.
  bool runs_programs = false;
  std::vector<JobSpec> jobs;
  // What is wrong, added by each check in turn. If there is anything, the batch is refused as a
  // whole. A check skips the entries that an earlier check found bad.
  std::vector<Violation> violations;
  absl::flat_hash_set<size_t> bad_entries;
  absl::Time posted;  // for runs: when they were posted; their deadlines count from then
  size_t size = 0;    // entries of the request: `specs` is empty if it was refused early
};

// The answer to a batch.
struct PostReply {
  absl::Status status;  // if not OK, the batch was refused as a whole, and nothing was posted
  std::vector<Violation> violations;
  uint64_t first_transfer_id = 0;
  uint64_t first_over_value = 0;
  uint32_t prepared_batch = 0;
};

// The name of a range in a request: `range` of the layout of `buffer`; all its blocks, or all its
// ranges, if the layout is of that kind.
std::string FieldOf(size_t buffer, const Layout& layout, size_t range);
// The name in a request of what a run binds to one of the program's buffers.
std::string BindingField(size_t run, size_t binding);

// The status of a batch that is refused for `violations` (not empty): code and reason of the first
// of them.
absl::Status RefusedBatch(const std::vector<Violation>& violations, size_t batch_size);

}  // namespace ferry
