// SPDX-License-Identifier: Apache-2.0
// Both ends of a measurement: the sender in this process, the receiver in a process of its own,
// which dies with the pair. One thread.
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
  // The command that calls RunBenchReceiver(3).
  std::vector<std::string> receiver_command;
  std::string client_dir;
  std::string peer_client_dir;
  int64_t source = -1;  // -1: the first device of its daemon
  // -1: the first device of its daemon; the second one, if both ends share the daemon
  int64_t destination = -1;
  int route = FERRY_ROUTE_ANY;
  // At either end, a wait that lasts longer ends with DEADLINE_EXCEEDED.
  absl::Duration patience = absl::InfiniteDuration();
};

class BenchPair {
 public:
  // One of the movements below. Returns how long it took.
  using Once = absl::FunctionRef<absl::StatusOr<absl::Duration>()>;

  static absl::StatusOr<BenchPair> Open(const BenchPairOptions& options);

  // The limits of the sender's session.
  ferry_limits limits() const { return ferry_session_limits(sender_.session()); }
  // The route of the sender's last transfer.
  std::string Route() const { return sender_.Route(); }

  // Makes a fresh arena at each end. Returns how long the receiver's took, first touch included.
  absl::StatusOr<absl::Duration> MakeArenas(uint64_t bytes);
  // Moves `count` transfers of `bytes`; the receives are posted before. Measures from the post of
  // the first send to the return of the receiver's wait.
  absl::StatusOr<absl::Duration> Run(uint64_t count, uint64_t bytes);
  // As Run, for one transfer of `count` blocks by block table.
  absl::StatusOr<absl::Duration> RunBlocks(uint64_t count, uint64_t bytes);
  // Prepares `count` transfers of `bytes` at both ends, and fires them once.
  absl::Status Prepare(uint64_t count, uint64_t bytes);
  // As Prepare, for one transfer of `count` blocks by block table.
  absl::Status PrepareBlocks(uint64_t count, uint64_t bytes);
  // Prepares `bytes` there and back. Ping then returns half of the time of each of its round trips,
  // from client to client; both sleep while they wait.
  absl::Status PreparePing(uint64_t bytes);
  absl::StatusOr<std::vector<absl::Duration>> Ping(uint64_t times);
  absl::StatusOr<absl::Duration> PingOnce();
  // Fires what Prepare has prepared; the receiver has fired before. Measures from the sender's
  // firing to the return of the receiver's wait.
  absl::StatusOr<absl::Duration> Fire();
  // Fires it `times`, each end as soon as it may.
  absl::StatusOr<absl::Duration> FireMany(uint64_t times);
  // Moves `count` transfers in batches; both ends post as they go.
  absl::StatusOr<absl::Duration> Stream(uint64_t count, uint64_t bytes, uint64_t batch,
                                        uint64_t window);
  // Posts receives that nobody will answer, until Unpark.
  absl::Status Park(uint64_t count, uint64_t bytes);
  absl::Status Unpark();
  // Kills the receiver's process during a firing of what Prepare has prepared. Returns how long it
  // took until the firing ended here with an error. Afterwards the pair cannot be used.
  absl::StatusOr<absl::Duration> KillReceiver();

  // Does `once` with bytes that differ, in each bit, from all before at either end, and checks that
  // it has moved them. DATA_LOSS if it has not, or if it moves nothing. So a transfer that leaves
  // the old bytes is noticed. The checking is not in the returned time, but the bytes are cold in
  // the caches.
  absl::StatusOr<absl::Duration> Check(Once once);
  // Check for a movement by several pairs at once.
  static absl::StatusOr<absl::Duration> CheckAll(absl::Span<BenchPair* const> pairs, Once once);
  // Check for the first movement in fresh arenas, which nothing has touched at the receiver.
  absl::StatusOr<absl::Duration> CheckFirst(Once once);
  // Does `once` so many `times`; checks the last one.
  absl::StatusOr<std::vector<absl::Duration>> Repeat(uint64_t times, Once once);

 protected:  // for tests of the checks
  // Puts other bytes at the sender, and at the receiver bytes that are neither these nor the old
  // ones.
  absl::Status Renew();
  // DATA_LOSS unless something was moved since MakeArenas or Renew and is the same at both ends.
  absl::Status Compare();
  BenchEnd& sender() { return sender_; }

 private:
  BenchPair(BenchEnd sender, ChildProcess receiver, UniqueFd socket)
      : sender_(std::move(sender)),
        receiver_(std::move(receiver)),
        socket_(std::move(socket)),
        // A start that no other pair has: memory that another pair had still holds that pair's
        // contents.
        contents_(static_cast<uint64_t>(MonotonicNanoseconds())) {}
  absl::Status Order(const BenchOrder& order);
  absl::StatusOr<BenchAnswer> Answer();
  absl::StatusOr<BenchAnswer> Ask(const BenchOrder& order);
  // Orders `order` of the receiver, does `act()` at the sender, and returns the time.
  template <typename Act>
  absl::StatusOr<absl::Duration> Measure(const BenchOrder& order, Act act);
  // Prepares by order `kind` at the receiver and by `prepare(key)` here, and fires once.
  template <typename Do>
  absl::Status PrepareAs(BenchOrderKind kind, uint64_t count, uint64_t bytes, Do prepare);
  // Has the receiver post by order `kind`, then posts the sends by `post(key)`.
  template <typename Post>
  absl::StatusOr<absl::Duration> RunAs(BenchOrderKind kind, uint64_t count, uint64_t bytes,
                                       Post post);

  BenchEnd sender_;
  ChildProcess receiver_;
  UniqueFd socket_;
  uint64_t next_key_ = 1;
  uint64_t contents_;  // number of the contents at the sender, see BenchEnd::Fill
};

}  // namespace ferry::tools
