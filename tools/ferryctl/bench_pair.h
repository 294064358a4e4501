// SPDX-License-Identifier: Apache-2.0
// Both ends of a measurement: the sender in this process, the receiver in one of its own. One
// thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
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
  // One of the movements below, which says how long it took.
  using Once = absl::FunctionRef<absl::StatusOr<absl::Duration>()>;

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
  absl::StatusOr<absl::Duration> PingOnce();
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

  // `once`, with other bytes than any before at either end, each bit of them, and looks whether it
  // has moved them. DATA_LOSS if not, or if it moves nothing: a transfer that leaves what was there
  // before is seen. There is no other way to compare. Nothing of the looking is in its time, but
  // its bytes are cold in the caches.
  absl::StatusOr<absl::Duration> Check(Once once);
  // The same of what moves by several pairs at a time.
  static absl::StatusOr<absl::Duration> CheckAll(absl::Span<BenchPair* const> pairs, Once once);
  // The same of the first that moves in fresh arenas, which nothing has touched at the receiver.
  absl::StatusOr<absl::Duration> CheckFirst(Once once);
  // `once` so many `times`, the last time checked.
  absl::StatusOr<std::vector<absl::Duration>> Repeat(uint64_t times, Once once);

 protected:  // for tests of these
  // Other bytes at the sender, at the receiver neither these nor those.
  absl::Status Renew();
  // DATA_LOSS unless something was moved since MakeArenas or Renew, and is the same at both ends.
  absl::Status Compare();
  BenchEnd& sender() { return sender_; }

 private:
  BenchPair(BenchEnd sender, ChildProcess receiver, UniqueFd socket)
      : sender_(std::move(sender)),
        receiver_(std::move(receiver)),
        socket_(std::move(socket)),
        // Memory that another pair had before has what that one's arenas had.
        contents_(static_cast<uint64_t>(MonotonicNanoseconds())) {}
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
  uint64_t contents_;  // the number of those at the sender
};

}  // namespace ferry::tools
