// SPDX-License-Identifier: Apache-2.0
#include "transfer/nccl/bundles.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry {
namespace {

bool Before(const BundleHalf& half, uint64_t place) { return half.place < place; }

}  // namespace

NcclBundles::~NcclBundles() {
  lane_.RunAndWait([this] {
    while (!places_.empty()) {
      const auto [transfer, attempt] = places_.begin()->first;
      Abort(transfer, attempt,
            Error(absl::StatusCode::kAborted, Reason::kDraining,
                  absl::StrCat("prepared ", transfer.ToString(), ": its lane is taken down")));
    }
    if (polled_) lane_.RemovePoller(this);
    answers_.Flush();
  });
  // A task that was posted before finds nothing to do; it must have run before the members go.
  lane_.RunAndWait([] {});
}

void NcclBundles::Arm(std::vector<BundleHalf> halves) {
  home_.Check();
  FERRY_CHECK(lane_.IsCurrent());
  if (!std::exchange(polled_, true)) lane_.AddPoller(this);
  for (BundleHalf& half : halves) {
    std::unique_ptr<Bundle>& bundle = bundles_[half.bundle];
    if (bundle == nullptr) bundle = std::make_unique<Bundle>(lane_, half.own);
    FERRY_CHECK(bundle->own == half.own);
    FERRY_CHECK(
        places_.try_emplace(std::make_pair(half.transfer, half.attempt), half.bundle, half.place)
            .second);
    bundle->bytes += half.part.bytes;
    bundle->trigger.Arm();
    // Mostly ascending.
    const auto at =
        bundle->halves.empty() || Before(bundle->halves.back(), half.place)
            ? bundle->halves.end()
            : std::lower_bound(bundle->halves.begin(), bundle->halves.end(), half.place, Before);
    bundle->halves.insert(at, std::move(half));
  }
}

uint64_t NcclBundles::Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) {
  home_.Check();
  FERRY_CHECK(lane_.IsCurrent());
  const auto found = places_.find(std::make_pair(transfer, attempt));
  if (found == places_.end()) return 0;
  const auto [number, place] = found->second;
  places_.erase(found);
  Bundle& bundle = *bundles_.at(number);
  const auto half = std::lower_bound(bundle.halves.begin(), bundle.halves.end(), place, Before);
  bundle.trigger.Disarm();
  bundle.bytes -= half->part.bytes;
  bundle.halves.erase(half);
  if (bundle.halves.empty()) bundles_.erase(number);
  answers_.Add({transfer, attempt, why});
  return number;
}

std::vector<GroupPart> NcclBundles::PartsOf(uint64_t number, uint64_t offset,
                                            uint64_t bytes) const {
  home_.Check();
  const Bundle& bundle = *bundles_.at(number);
  FERRY_CHECK(offset <= bundle.bytes && bytes <= bundle.bytes - offset);
  std::vector<GroupPart> parts;
  for (const BundleHalf& half : bundle.halves) {
    if (bytes == 0) break;
    if (offset >= half.part.bytes) {
      offset -= half.part.bytes;
      continue;
    }
    GroupPart& part = parts.emplace_back(half.part);
    if (offset > 0) part.cursor.Seek(offset);
    part.bytes = std::min(part.bytes - offset, bytes);
    bytes -= part.bytes;
    offset = 0;
  }
  return parts;
}

void NcclBundles::OnMoved(uint64_t number, uint64_t bytes) {
  home_.Check();
  Bundle& bundle = *bundles_.at(number);
  bundle.moved += bytes;
  if (bundle.moved < bundle.bytes) return;
  bundle.moved = 0;
  const size_t all = bundle.halves.size();
  bundle.trigger.Over(bundle.trigger.next(), static_cast<uint32_t>(all), all);
}

bool NcclBundles::Poll() {
  bool progress = false;
  for (const auto& [number, bundle] : bundles_) {
    if (!bundle->trigger.Ready()) continue;
    bundle->trigger.Begin();
    progress = true;
    wanted_(number);
  }
  return progress;
}

bool NcclBundles::PrepareToPark() {
  return std::none_of(bundles_.begin(), bundles_.end(),
                      [](const auto& entry) { return entry.second->trigger.Ready(); });
}

}  // namespace ferry
