// SPDX-License-Identifier: Apache-2.0
// Members: the sessions that have said that they take part in a domain on a device, here and at the
// peers. A place (a domain on a device) that had members and has none any more is deserted: nobody
// is left there who could post the partner of a half. A half that waits for one from there
// is told at once. A place where nobody has ever joined is not deserted: nothing is known of it.
//
// The daemon that owns the device knows its members, and tells every peer how many a place has.
// When a link is lost, what the peer said last still holds. If the peer has started anew when the
// link is up again, its members have kRejoin to join once more. Then their places are deserted.
//
// Example. Session 7 of node-a joins domain D on device 0: node-a says "1 member" to node-b.
// Session 7 dies: "0 members, the last one was 'trainer-0'". A receive at node-b from device 0 in D
// ends, and so does each that is posted before a member has joined there again.
//
// Pure: time is an argument. Home: control (owned by MemberNews).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "base/ids.h"
#include "transfer/types.h"

namespace ferry {

// A domain on a device.
struct MemberPlace {
  GlobalDeviceId device;
  std::string domain;
  auto operator<=>(const MemberPlace&) const = default;
};

class Members {
 public:
  static constexpr size_t kMostOfSession = 64;   // places that one session may join
  static constexpr size_t kMostOfPeer = 65'536;  // populated places that are kept of one peer
  // The most deserted places on one daemon's devices: beyond it the oldest is forgotten.
  static constexpr size_t kMostDeserted = 65'536;
  static constexpr size_t kMostName = 64;                       // bytes of a member's name
  static constexpr absl::Duration kMemory = absl::Minutes(10);  // how long a place stays deserted
  // How long the members of a peer's next life have to join again.
  static constexpr absl::Duration kRejoin = absl::Seconds(10);

  struct Member {
    SessionId session;  // of this daemon
    std::string name;
  };
  struct Place {
    PeerId owner;        // the daemon that owns the device
    uint32_t count = 0;  // members now; 0: it is deserted
    // Deserted: the name of the member that was the last to leave; "" if nobody has said it.
    std::string last;
    absl::Time left;    // deserted: when this daemon heard of it
    bool lost = false;  // populated, but its owner has not said so since its link was lost
    std::vector<Member> members = {};  // the members that are sessions of this daemon
  };
  using Places = absl::btree_map<MemberPlace, Place>;

  explicit Members(PeerId self) : self_(self) {}

  // A session of this daemon joins. True: the place has one member more. False: the session was a
  // member already, and has another name from now on. RESOURCE_EXHAUSTED/QUEUE_FULL if the session
  // has joined kMostOfSession places.
  absl::StatusOr<bool> Join(SessionId session, const MemberPlace& place, absl::string_view name);
  // The session is over. Returns the places that it had joined.
  std::vector<MemberPlace> Leave(absl::Time now, SessionId session);

  // A peer says how many members a place on its device has. False if the peer has too many places.
  bool OnTold(absl::Time now, PeerId peer, const MemberPlace& where, uint32_t count,
              absl::string_view last);
  void OnPeerLost(PeerId peer);
  void OnPeerUp(absl::Time now, PeerId peer);
  // The peer is no peer any more; its devices may get another owner.
  void Forget(PeerId peer);

  // The place if it is deserted; else null.
  const Place* FindDeserted(const std::string& domain, GlobalDeviceId device) const;
  bool any_deserted() const { return deserted_ > 0; }

  // Deserts the places of peers' former lives that nobody has joined again. Forgets places that
  // were deserted kMemory ago. True if a place was deserted.
  bool OnTime(absl::Time now);
  // OnTime() has nothing to do before this; infinite: nothing at all.
  absl::Time NextTime() const { return next_time_; }

  // All that is known, by device and domain.
  const Places& places() const { return places_; }

 private:
  struct OfOwner {
    size_t populated = 0;
    // Places that were deserted, and when, the oldest first. A place that was populated or deserted
    // again since still has its old entry.
    std::deque<std::pair<absl::Time, MemberPlace>> deserted;
    absl::Time rejoin_until = absl::InfiniteFuture();  // if the peer is up again
  };
  void Desert(absl::Time now, const MemberPlace& where, Place& place, absl::string_view last);
  void Populate(Place& place, uint32_t count);
  // Deserts the places of a peer's former life. True if it had any.
  bool DesertLost(absl::Time now, PeerId peer);
  // Removes the oldest entry of `deserted`, and its place if that is deserted since then.
  void ForgetOldest(OfOwner& owner);

  const PeerId self_;
  Places places_;
  absl::flat_hash_map<SessionId, std::vector<MemberPlace>> of_sessions_;
  absl::btree_map<PeerId, OfOwner> owners_;
  size_t deserted_ = 0;
  absl::Time next_time_ = absl::InfiniteFuture();
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
