// SPDX-License-Identifier: Apache-2.0
// The link pages of all links to daemons of this host (LinkPage): of each link the page that we
// made, and the page of the peer that is mapped here. A page lives no longer than its link: with a
// new link come new pages. Lanes keep a page while control replaces it. Home: control, but for
// StillValid. Owner: PeerTable.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/closer.h"
#include "base/fd.h"
#include "base/home.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "transfer/mapped/link_page.h"

namespace ferry {

class LinkPages {
 public:
  // Must be called for each PeerId in turn, that of this daemon too, before any other function
  // names it. A peer that was known before keeps its place. `node`: for errors.
  void AddPeer(PeerId peer, const std::string& node);

  // Makes our page of a new link. If that fails the link has none.
  void Make(PeerId peer);
  // Null if there is none.
  const LinkPage* Ours(PeerId peer) const;
  // The link is lost. From here on a peer that still copies from our arenas does not believe what
  // it reads.
  void Revoke(PeerId peer);

  // Maps the page of the peer: of one descriptor, or of three with its doorbells. What it refuses
  // LinkPage::Map refuses; the descriptors are then left in `fds`.
  absl::Status MapTheirs(PeerId peer, ReceivedFds& fds);
  void DropTheirs(PeerId peer);

  // OK as long as bytes that were read from the peer's arenas may be believed. Any thread.
  absl::Status StillValid(PeerId peer) const;
  // The page that we made and whose slots we fire (`ours`), or the peer's page. Null if there is no
  // such page, or it has no slots.
  std::shared_ptr<LinkPage> WithSlots(PeerId peer, bool ours) const;

 private:
  struct Theirs {
    std::string node;
    std::shared_ptr<LinkPage> page;
  };
  std::vector<std::shared_ptr<LinkPage>> ours_;  // by PeerId; null: there is none
  mutable Mutex mutex_;
  std::vector<Theirs> theirs_ ABSL_GUARDED_BY(mutex_);  // by PeerId
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
