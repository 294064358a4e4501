// SPDX-License-Identifier: Apache-2.0
// One page that two daemons of a host share for as long as their link lives: each says in it that
// what it owns may no longer be copied from. This is how a copy out of a lost peer's memory is
// found out: the source's daemon revokes BEFORE it ends any transfer of the link towards its
// clients, who may then write over the bytes; the destination's lane looks AFTER its copy and
// before success is told. So bytes that changed under a copy are never reported as good.
//
// Made by one side (Create) and handed to the other (Map). Any thread; the mapping lives as long as
// this.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "device/host/host_memory.h"

namespace ferry {

class LinkPage {
 public:
  static constexpr uint64_t kBytes = 4096;

  // The side that makes the page; `memfd` of it goes to the other.
  static absl::StatusOr<std::unique_ptr<LinkPage>> Create();
  // The side that gets it. Refuses what HostMapping refuses.
  static absl::StatusOr<std::unique_ptr<LinkPage>> Map(UniqueFd memfd);

  int memfd() const { return mapping_->fd(); }

  // From here on the other side's copies out of our memory count for nothing. For good.
  void Revoke();
  // Has the other side revoked? Asked after the bytes were read.
  bool Revoked() const;

 private:
  enum class End { kMaker = 0, kTaker = 1 };
  LinkPage(std::unique_ptr<HostMapping> mapping, End end);
  uint32_t* Word(End end) const;

  const std::unique_ptr<HostMapping> mapping_;
  const End own_;
};

}  // namespace ferry
