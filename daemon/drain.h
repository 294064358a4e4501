// SPDX-License-Identifier: Apache-2.0
// The daemon's drain: since when, who waits for it, and how it ends. However many ask for one,
// there is one: the earliest deadline of those who still wait for it is its own, and all of them
// are told the same end, each once. Who goes, such as a call that is interrupted, takes its
// deadline along; the daemon drains on until the drain is taken back, then nothing of it is left.
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

namespace ferry {

class Drain {
 public:
  // Clients may ask for so long how theirs ended: the counters tell only that they failed.
  static constexpr absl::Duration kFarewell = absl::Milliseconds(300);
  // What is launched at the deadline gets so long to end by itself.
  static constexpr absl::Duration kMercy = absl::Seconds(2);

  // The end: how many transfers and jobs did not end well because of the deadline, or
  // ABORTED/CANCELLED if the drain was taken back.
  using Done = std::function<void(absl::StatusOr<uint64_t> cut)>;
  using Caller = uint64_t;

  explicit Drain(std::string node) : node_(std::move(node)) {}

  // `stops`: the daemon ends with it, so that it cannot be taken back.
  Caller Join(absl::Time now, absl::Duration timeout, bool stops, Done done);
  // The caller waits no longer than until `now`.
  void Hurry(Caller caller, absl::Time now);
  // The caller is gone, and is not called any more. False: it was already.
  bool Leave(Caller caller);
  // The daemon serves again. UNAVAILABLE/DRAINING if it is about to stop.
  absl::Status TakeBack();

  bool on() const { return on_; }
  // Since when somebody waits for it, if anybody does.
  absl::Time began() const { return began_; }
  // What is left in flight is ended then; none if nobody waits any more.
  absl::Time deadline() const;

  // A transfer or job has been told that it ends because of the drain.
  void Told(absl::Time now) { farewell_ = now + kFarewell; }
  // `left`: what is in flight. `failed`: what ever did. True: what is in flight must be ended now.
  bool OnTime(absl::Time now, size_t left, uint64_t failed);
  // When to be called again if nothing happens.
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
  Caller callers_ = 0;  // so far
  std::map<Caller, Waiting> waiting_;
  // Of the drain that those wait for.
  absl::Time began_;
  absl::Time farewell_ = absl::InfinitePast();
  struct Cut {
    uint64_t failed = 0;  // ever, when the deadline came
    absl::Time until;     // is what was launched waited for
  };
  std::optional<Cut> cut_;
};

}  // namespace ferry
