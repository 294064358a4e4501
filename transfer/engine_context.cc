// SPDX-License-Identifier: Apache-2.0
#include "transfer/engine_context.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {

std::string EngineContext::PlaceOf(Side side, const MatchKey& key) const {
  const GlobalDeviceId device = side == Side::kSend ? key.source : key.destination;
  return absl::StrCat(side == Side::kSend ? "the send" : "the receive",
                      key.count > 1 ? "s of " : " of ", DescribeKey(key), " at ",
                      NodeName(OwnerOf(device)), " (device ", device.value(), ")");
}

absl::Status EngineContext::UnreachableStatus(const Posted& half, const absl::Status& why) const {
  return Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
               absl::StrCat(NameOf(half), ": the link to ", NodeName(half.peer),
                            " was lost: ", absl::string_view(why.message())));
}

absl::Status EngineContext::LeftStatus(const Posted& half) const {
  return Error(
      absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
      absl::StrCat(NameOf(half), ": ", absl::string_view(PeerOf(half.peer).last_error.message())));
}

}  // namespace ferry
