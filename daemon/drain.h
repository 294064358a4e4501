// SPDX-License-Identifier: Apache-2.0
// The daemon's drain: who waits for it, until when, and how it ends. There is one drain, however
// many ask for one. Its deadline is the earliest deadline of those who still wait. All of them are
// told the same end, each once. Who leaves (a call that is interrupted) takes his deadline with
// him. The daemon keeps draining until the drain is taken back; then nothing of it is left.
//
// Pure: time is an argument. Home: control.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/home.h"

namespace ferry {

class Drain {
 public:
  // After the last transfer was told that it ends, the daemon stays this long, so that clients can
  // ask how theirs ended: the counters tell only that they failed.
  static constexpr absl::Duration kFarewell = absl::Milliseconds(300);
  // A launch that is under way at the deadline may take this much longer to end by itself.
  static constexpr absl::Duration kMercy = absl::Seconds(2);

  // How it ended: the number of transfers and jobs that failed because of the deadline, or
  // ABORTED/CANCELLED if the drain was taken back.
  using Done = std::function<void(absl::StatusOr<uint64_t> cut)>;
  using Caller = uint64_t;

  explicit Drain(std::string node) : node_(std::move(node)) {}

  // Waits for the drain, which begins if there is none. `stops`: the daemon ends afterwards, so
  // this drain cannot be taken back.
  Caller Join(absl::Time now, absl::Duration timeout, bool stops, Done done);
  // The caller's deadline is `now` at the latest.
  void Hurry(Caller caller, absl::Time now);
  // The caller waits no longer, and is not called any more. False if it was called already.
  bool Leave(Caller caller);
  // The daemon serves again, and all callers are told. UNAVAILABLE/DRAINING if the daemon is about
  // to stop.
  absl::Status TakeBack();

  bool on() const { return on_; }
  // When the first of those who wait joined, if anybody waits.
  absl::Time began() const { return began_; }
  // When what is left in flight is ended; infinite if nobody waits.
  absl::Time deadline() const;

  // A transfer or job was told that it ends because of the drain; see kFarewell.
  void Told(absl::Time now) {
    home_.Check();
    farewell_ = now + kFarewell;
  }
  // To be called at next(). `left`: how many transfers and jobs are in flight; `failed`: how many
  // have ever failed. True if what is in flight must be ended now.
  bool OnTime(absl::Time now, size_t left, uint64_t failed);
  // When to call OnTime again if nothing happens.
  absl::Time next(size_t left) const;

 private:
  struct Waiting {
    absl::Time deadline;
    Done done;
  };
  void End(const absl::StatusOr<uint64_t>& how);
  void Forget();

  const std::string node_;
  bool on_ = false;
  bool stops_ = false;
  Caller callers_ = 0;  // how many callers there ever were
  std::map<Caller, Waiting> waiting_;
  // The following belong to the drain that `waiting_` waits for.
  absl::Time began_;
  absl::Time farewell_ = absl::InfinitePast();
  // Set once the deadline has come.
  struct Cut {
    uint64_t failed = 0;  // how many had ever failed by then
    absl::Time until;     // how long launches are waited for
  };
  std::optional<Cut> cut_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
