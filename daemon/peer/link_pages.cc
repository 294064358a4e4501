// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/link_pages.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry {

void LinkPages::AddPeer(PeerId peer, const std::string& node) {
  home_.Check();
  FERRY_CHECK(peer.value() <= ours_.size());
  if (peer.value() < ours_.size()) return;
  ours_.emplace_back();
  MutexLock lock(mutex_);
  theirs_.push_back({node, nullptr});
}

void LinkPages::Make(PeerId peer) {
  home_.Check();
  absl::StatusOr<std::unique_ptr<LinkPage>> page = LinkPage::Create();
  if (page.ok()) ours_[peer.value()] = *std::move(page);
}

const LinkPage* LinkPages::Ours(PeerId peer) const {
  home_.Check();
  return ours_[peer.value()].get();
}

void LinkPages::Revoke(PeerId peer) {
  home_.Check();
  std::shared_ptr<LinkPage>& page = ours_[peer.value()];
  if (page != nullptr) page->Revoke();
  page.reset();
}

absl::Status LinkPages::MapTheirs(PeerId peer, ReceivedFds& fds) {
  home_.Check();
  absl::StatusOr<std::unique_ptr<LinkPage>> page =
      fds.size() == 1 ? LinkPage::Map(std::move(fds[0]))
                      : LinkPage::Map(std::move(fds[0]), std::move(fds[1]), std::move(fds[2]));
  if (!page.ok()) return page.status();
  MutexLock lock(mutex_);
  theirs_[peer.value()].page = *std::move(page);
  return absl::OkStatus();
}

void LinkPages::DropTheirs(PeerId peer) {
  home_.Check();
  MutexLock lock(mutex_);
  theirs_[peer.value()].page.reset();
}

absl::Status LinkPages::StillValid(PeerId peer) const {
  MutexLock lock(mutex_);
  const auto& [node, page] = theirs_[peer.value()];
  if (page != nullptr && !page->Revoked()) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
               absl::StrCat(node, " gave up the link during the copy"));
}

std::shared_ptr<LinkPage> LinkPages::WithSlots(PeerId peer, bool ours) const {
  home_.Check();
  std::shared_ptr<LinkPage> page = ours_[peer.value()];
  if (!ours) {
    MutexLock lock(mutex_);
    page = theirs_[peer.value()].page;
  }
  return page != nullptr && page->has_slots() ? page : nullptr;
}

}  // namespace ferry
