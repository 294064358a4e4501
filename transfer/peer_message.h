// SPDX-License-Identifier: Apache-2.0
// What two engines tell each other about one transfer, as plain data: the meaning of each step is
// in proto/ferry/peer/v1/peer.proto, which daemon/rpc/convert codes these to and from. `transfer`
// always is the source daemon's id of the send.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "transfer/types.h"

namespace ferry {

struct Offer {
  TransferId transfer;
  MatchKey key;
  uint64_t bytes = 0;
  DataType data_type = DataType::kUnspecified;
  Shape shape;
  RangeList ranges;
  bool ready = true;
  absl::Duration deadline = absl::InfiniteDuration();  // what is left of it
  int32_t priority = 0;
  Route route = Route::kUnspecified;
};
struct Matched {
  TransferId transfer;
};
struct Ready {
  TransferId transfer;
};
struct Go {
  TransferId transfer;
  uint32_t attempt = 0;
  Route route = Route::kUnspecified;
  uint64_t tag = 0;
};
struct Done {
  TransferId transfer;
  absl::Status status;
  Route route = Route::kUnspecified;
};
struct Withdraw {
  TransferId transfer;
  absl::Status status;
};
struct SendFailed {
  TransferId transfer;
  uint32_t attempt = 0;
  absl::Status status;
};

using PeerMessage = std::variant<Offer, Matched, Ready, Go, Done, Withdraw, SendFailed>;

}  // namespace ferry
