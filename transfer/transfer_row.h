// SPDX-License-Identifier: Apache-2.0
// What TransferEngine shows of transfers and offers: plain records. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/ids.h"
#include "transfer/types.h"

namespace ferry {

// How a half is shown; the half's own states are finer (transfer/half_state.h).
enum class ShownState : uint8_t { kWaiting, kOffered, kMatched, kLaunched, kArmed };
inline constexpr std::array<const char*, 5> kShownStateNames = {"waiting", "offered", "matched",
                                                                "launched", "armed"};

// Of a transfer of which a half is posted at this daemon.
struct TransferRow {
  TransferId transfer;
  Side side = Side::kSend;
  MatchKey key;
  uint64_t bytes = 0;
  const char* state = "";  // of kShownStateNames
  bool prepared = false;
  uint32_t batch = 0;  // of the session's prepared batches
  bool fires = false;  // prepared: nothing holds it up but the words of its two ends
  Route route = Route::kUnspecified;
  absl::Time posted;
  std::string waits_for;  // "the receive at node-b", "its data (defined timeline 3 >= 7)", ...
};

// A TransferRow without what has to be made for it.
struct TransferBrief {
  TransferId transfer;
  Side side = Side::kSend;
  GlobalDeviceId source, destination;
  uint64_t bytes = 0;
  ShownState state = ShownState::kWaiting;
  Route route = Route::kUnspecified;
  bool prepared = false;
  uint32_t batch = 0;  // as in TransferRow
  absl::Time posted;
};

// A send that a peer has offered and whose receive was not posted here.
struct WaitingOfferRow {
  std::string node;     // the peer's
  TransferId transfer;  // the peer's
  MatchKey key;
  uint64_t bytes = 0;
};

}  // namespace ferry
