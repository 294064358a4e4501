// SPDX-License-Identifier: Apache-2.0
// Both ends of a measurement: the sender in this process, the receiver in one of its own. One
// thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "tools/ferryctl/bench_end.h"
#include "tools/ferryctl/bench_receiver.h"
#include "tools/ferryctl/child_process.h"

namespace ferry::tools {

struct BenchPairOptions {
  // Runs RunBenchReceiver(3) in a process of its own.
  std::vector<std::string> receiver_command;
  std::string client_dir;
  std::string peer_client_dir;
  int64_t source = -1;       // the first device of its daemon
  int64_t destination = -1;  // of a second device of the daemon, if both ends share it
  int route = FERRY_ROUTE_ANY;
  int post_by = FERRY_POST_BY_ANY;
  // What takes longer ends with DEADLINE_EXCEEDED, at either end.
  absl::Duration patience = absl::InfiniteDuration();
};

class BenchPair {
 public:
  static absl::StatusOr<BenchPair> Open(const BenchPairOptions& options);

  // Of the sender's session.
  ferry_limits limits() const { return ferry_session_limits(sender_.session()); }
  // That the sender's last transfer took.
  std::string Route() const { return sender_.Route(); }

  // A fresh arena at each end. The duration: what the receiver's took, first touch included.
  absl::StatusOr<absl::Duration> MakeArenas(uint64_t bytes);
  // `count` transfers of `bytes`, the receives posted before: from the first send's post to the
  // moment the receiver's wait has returned.
  absl::StatusOr<absl::Duration> Run(uint64_t count, uint64_t bytes);
  // The same for one transfer of `count` blocks by block table.
  absl::StatusOr<absl::Duration> RunBlocks(uint64_t count, uint64_t bytes);
  // `count` transfers of `bytes`, prepared at both ends and fired once.
  absl::Status Prepare(uint64_t count, uint64_t bytes);
  // The same for one transfer of `count` blocks by block table.
  absl::Status PrepareBlocks(uint64_t count, uint64_t bytes);
  // `bytes` there and back again, prepared: half of each of so many round trips, from client to
  // client, both asleep while they wait.
  absl::Status PreparePing(uint64_t bytes);
  absl::StatusOr<std::vector<absl::Duration>> Ping(uint64_t times);
  // Fires what Prepare has prepared: from the sender's firing, the receiver's being done before, to
  // the moment the receiver's wait has returned.
  absl::StatusOr<absl::Duration> Fire();
  // Fires them `times`, each end as soon as it may.
  absl::StatusOr<absl::Duration> FireMany(uint64_t times);
  // As many as `count` in batches, both ends posting as they go.
  absl::StatusOr<absl::Duration> Stream(uint64_t count, uint64_t bytes, uint64_t batch,
                                        uint64_t window);
  // Receives that nobody will answer.
  absl::Status Park(uint64_t count, uint64_t bytes);
  absl::Status Unpark();
  // Kills the receiver's process under a firing of what Prepare has prepared: until that has ended
  // with an error here. Of the pair nothing can be used any more.
  absl::StatusOr<absl::Duration> KillReceiver();
  // Other bytes where the next transfers are sent from, each bit of them: so that a comparison
  // tells what moves from here on from what has moved before. Not while time is measured.
  absl::Status Renew();
  // DATA_LOSS unless all bytes that were moved since MakeArenas are the same at both ends.
  absl::Status Compare();

 private:
  BenchPair(BenchEnd sender, ChildProcess receiver, UniqueFd socket)
      : sender_(std::move(sender)), receiver_(std::move(receiver)), socket_(std::move(socket)) {}
  absl::Status Order(const BenchOrder& order);
  absl::StatusOr<BenchAnswer> Answer();
  absl::StatusOr<BenchAnswer> Ask(const BenchOrder& order);
  // What the receiver does by `order`, then what the sender does by `act()`.
  template <typename Act>
  absl::StatusOr<absl::Duration> Measure(const BenchOrder& order, Act act);
  // Prepared by `kind` at the receiver and by `prepare(key)` here, and fired once.
  template <typename Do>
  absl::Status PrepareAs(BenchOrderKind kind, uint64_t count, uint64_t bytes, Do prepare);
  // Receives posted by `kind`, then the send or sends by `post(key)`.
  template <typename Post>
  absl::StatusOr<absl::Duration> RunAs(BenchOrderKind kind, uint64_t count, uint64_t bytes,
                                       Post post);

  BenchEnd sender_;
  ChildProcess receiver_;
  UniqueFd socket_;
  uint64_t next_key_ = 1;
  uint64_t filled_ = 0;  // how often
  bool pings_ = false;   // the receiver sends too
};

}  // namespace ferry::tools
