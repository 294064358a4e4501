// SPDX-License-Identifier: Apache-2.0
// Carries out the daemon's drain: Drain says who waits for it and until when; the drainer tells
// everybody that the daemon drains, and ends what does not end by itself. That is: prepared batches
// that nobody fires, transfers whose partner does not come, and, at the deadline, all the rest.
// Refuses to take a drain back of a daemon that is about to stop. Home: control. Owner: Daemon.
//
// Example: a drain begins with three transfers in flight and a deadline in 60 s. One ends by
// itself. One has no partner: it is ended after kPartner, unless a peer may still bring an offer.
// One is a prepared transfer that nobody fires: it is ended at once. So the drain ends after a
// quarter of a second, and nothing had to be cut off at the deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/home.h"
#include "base/ids.h"
#include "daemon/drain.h"

namespace ferry {

class Drainer {
 public:
  // Within this time after a link is up a peer has said its offers. A transfer without a partner
  // then has none there.
  static constexpr absl::Duration kPartner = absl::Milliseconds(250);
  // How often to look for prepared batches that nobody fires: control does not hear when a firing
  // ends.
  static constexpr absl::Duration kIdleLook = absl::Milliseconds(20);

  // What a drain asks of the daemon's parts. All on control.
  struct Hooks {
    // How many transfers and jobs are in flight; how many have ever failed.
    std::function<size_t()> in_flight;
    std::function<uint64_t()> failed;
    // From now on the daemon takes only batches that continue something in flight, and these until
    // `until`; none: it serves again. Called whenever the deadline may have changed.
    std::function<void(std::optional<absl::Time> until)> set_until;
    // Clients and probes are told that the daemon drains, or serves again. Once for each change.
    std::function<void(bool draining)> tell;
    // The first transfer or job of each prepared batch of which no firing is under way.
    std::function<std::vector<TransferId>()> idle_prepared;
    std::function<void(TransferId, const absl::Status& why)> end_prepared;
    // How many batches were ever taken while the daemon drained.
    std::function<uint64_t()> continued;
    // Asks transfers without a partner to end, see TransferDriver::CancelUnmatched. `any_peer`:
    // the partner may come from every peer, not only from those whose link is younger than
    // kPartner.
    struct Unmatched {
      size_t asked = 0;  // how many were asked to end
      size_t left = 0;   // how many were not, because their partner may still come
    };
    std::function<Unmatched(const absl::Status& why, bool any_peer)> cancel_unmatched;
    // Asks everything in flight to end.
    std::function<void(const absl::Status& why)> cancel_all;
  };

  Drainer(Executor& control, std::string node, Hooks hooks)
      : control_(control), node_(std::move(node)), hooks_(std::move(hooks)), drain_(node_) {}

  // As Drain's Join, Hurry, Leave and TakeBack, with `timeout` from now; and everybody is told.
  Drain::Caller Start(absl::Duration timeout, bool stops, Drain::Done done);
  void Hurry(Drain::Caller caller);
  bool Leave(Drain::Caller caller);
  absl::Status TakeBack();
  bool on() const { return drain_.on(); }

  // --- To be called after the tasks of each batch. Both return when to be called again.
  // Ends prepared batches that nobody fires and transfers whose partner does not come. Before the
  // engine's answers go out.
  absl::Time EndWhatCannotEnd(absl::Time now);
  // Looks at the deadline and the end of the drain. At the deadline, all that is in flight is asked
  // to end.
  absl::Time OnTime(absl::Time now);

 private:
  void Tell();
  absl::Time EndIdlePrepared(absl::Time now);
  absl::Time EndUnmatched(absl::Time now);

  Executor& control_;
  const std::string node_;
  const Hooks hooks_;
  Drain drain_;
  bool told_ = false;          // whether clients and probes were told that the daemon drains
  absl::Time look_idle_;       // when to look next for prepared batches that nobody fires
  absl::Time look_unmatched_;  // when to look next for transfers whose partner has not come
  uint64_t continued_ = 0;     // Hooks::continued() at that last look
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
