// SPDX-License-Identifier: Apache-2.0
// One page that two daemons of a host share for as long as their link lives. In it each daemon says
// that its memory may no longer be copied from. So a copy out of a lost peer's memory is found out.
// The source's daemon revokes BEFORE it ends any transfer of the link towards its clients, who may
// then write over the bytes. The destination's lane looks AFTER its copy, before success is
// reported. So bytes that changed under a copy are never reported as good.
//
// One side, the source of what is copied, makes the page (Create) and hands it to the other side
// (Map). Any thread; the mapping lives as long as this object.
//
// Behind the page are slots, by which the two lanes of a prepared batch agree without a message.
// The source's lane stores n in `fired` when its client wants firing n. The destination's lane adds
// to `carried` the number of transfers that it has carried out. A slot is 0 when it is given out:
// the source's lane clears it when it lets go of the batch, and the destination's lane has let go
// before. Each end has a doorbell for its parked lanes, if the other daemon knows doorbells. Both
// daemons have both doorbells, so neither reads or writes one: see SharedEventfd.
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
    uint64_t carried = 0;
  };
  static constexpr uint64_t kBytes = kPageBytes + kPreparedSlots * sizeof(Slot);

  // Makes the page. The other side gets `memfd` and, if the page has slots, both doorbells.
  // Where there is no SharedEventfd the page has no doorbells and no slots.
  static absl::StatusOr<std::unique_ptr<LinkPage>> Create();
  // Maps the page that the other side made. Refuses what HostMapping refuses, and doorbells that
  // are not eventfds; the caller then keeps the descriptors, since closing them may block.
  static absl::StatusOr<std::unique_ptr<LinkPage>> Map(UniqueFd&& memfd);
  static absl::StatusOr<std::unique_ptr<LinkPage>> Map(UniqueFd&& memfd, UniqueFd&& makers_doorbell,
                                                       UniqueFd&& takers_doorbell);

  int memfd() const { return mapping_->fd(); }
  int makers_doorbell() const { return doorbells_[0].get(); }
  int takers_doorbell() const { return doorbells_[1].get(); }

  // Slots for prepared transfers; `number` is 1 to kPreparedSlots.
  bool has_slots() const { return doorbells_[0].valid(); }
  Slot& slot(uint32_t number) const;
  // doorbell() is what this daemon's parked lanes hear. Ring(), after a store in a slot, wakes the
  // other end's lanes.
  Doorbell doorbell() const;
  void Ring() const;

  // From here on the other side's copies out of our memory count for nothing. For good.
  void Revoke();
  // Whether the other side has revoked. To be asked after the bytes were read.
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
