// SPDX-License-Identifier: Apache-2.0
// One page that two daemons of a host share for as long as their link lives: each says in it that
// what it owns may no longer be copied from. This is how a copy out of a lost peer's memory is
// found out: the source's daemon revokes BEFORE it ends any transfer of the link towards its
// clients, who may then write over the bytes; the destination's lane looks AFTER its copy and
// before success is told. So bytes that changed under a copy are never reported as good.
//
// Made by one side, the source of what is copied (Create), and handed to the other (Map). Any
// thread; the mapping lives as long as this.
//
// Behind the page are slots, by which the two lanes of a prepared batch agree without a message:
// the source's stores n in `fired` when its client wants firing n, the destination's adds to `done`
// how many transfers it has carried out. A slot is 0 when it is given out, because the source's
// lane clears it when it lets go, and the destination's has let go before. Each end has a doorbell
// for its parked lanes, if the other daemon knows them. Both daemons have both, so neither writes
// to nor reads one: see SharedEventfd.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "device/host/host_memory.h"
#include "device/lane.h"
#include "transfer/types.h"

namespace ferry {

class LinkPage {
 public:
  static constexpr uint64_t kPageBytes = 4096;
  struct alignas(64) Slot {
    uint64_t fired = 0;
    uint64_t done = 0;
  };
  static constexpr uint64_t kBytes = kPageBytes + kPreparedSlots * sizeof(Slot);

  // The side that makes the page; `memfd` of it goes to the other, and the doorbells to one that
  // knows prepared transfers. Without doorbells and slots where there is no SharedEventfd.
  static absl::StatusOr<std::unique_ptr<LinkPage>> Create();
  // The side that gets it. Refuses what HostMapping refuses, and doorbells that are not eventfds;
  // the descriptors are then left to the caller, since closing them may wait.
  static absl::StatusOr<std::unique_ptr<LinkPage>> Map(UniqueFd&& memfd);
  static absl::StatusOr<std::unique_ptr<LinkPage>> Map(UniqueFd&& memfd, UniqueFd&& makers_doorbell,
                                                       UniqueFd&& takers_doorbell);

  int memfd() const { return mapping_->fd(); }
  int makers_doorbell() const { return doorbells_[0].get(); }
  int takers_doorbell() const { return doorbells_[1].get(); }

  // For prepared transfers; `number` is 1 to kPreparedSlots.
  bool has_slots() const { return doorbells_[0].valid(); }
  Slot& slot(uint32_t number) const;
  // What our parked lanes hear; who stores in a slot rings for the other end's.
  Doorbell doorbell() const;
  void Ring() const;

  // From here on the other side's copies out of our memory count for nothing. For good.
  void Revoke();
  // Has the other side revoked? Asked after the bytes were read.
  bool Revoked() const;

 private:
  enum class End { kMaker = 0, kTaker = 1 };
  LinkPage(std::unique_ptr<HostMapping> mapping, End end);
  End other() const { return own_ == End::kMaker ? End::kTaker : End::kMaker; }
  uint32_t* Revocation(End end) const;
  uint32_t* Parked(End end) const;

  const std::unique_ptr<HostMapping> mapping_;
  const End own_;
  UniqueFd doorbells_[2];  // by End
};

}  // namespace ferry
