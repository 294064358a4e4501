// SPDX-License-Identifier: Apache-2.0
#include "transfer/engine_context.h"

#include "absl/strings/str_cat.h"

namespace ferry {

std::string EngineContext::PlaceOf(Side side, const MatchKey& key) const {
  const GlobalDeviceId device = side == Side::kSend ? key.source : key.destination;
  return absl::StrCat(side == Side::kSend ? "the send" : "the receive",
                      key.count > 1 ? "s of " : " of ", DescribeKey(key), " at ",
                      NodeName(OwnerOf(device)), " (device ", device.value(), ")");
}

}  // namespace ferry
