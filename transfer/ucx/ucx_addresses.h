// SPDX-License-Identifier: Apache-2.0
// UcxAddresses has what peers are told of this lane: the addresses of its workers, and how often
// its endpoints were closed by force (UcxAddressBlob::closings). A worker that is closed is told to
// nobody.
//
// Any thread: it has a lock. Owner: UcxTransport. The lane changes it, control asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "transfer/ucx/ucx_transport.h"

namespace ferry {

class UcxAddresses {
 public:
  using LinkKey = std::pair<PeerId, GlobalDeviceId>;

  // The next worker; returns its index.
  size_t Add(const std::string& kind, const std::string& address);
  // "": the worker is closed, draining, or about to be.
  void Set(size_t index, const std::string& address);

  // This end has closed the link's endpoint by force: the peer must close its own as often.
  void CountClosing(const LinkKey& key);
  // The peer has closed its endpoint `theirs` times. True if that is more often than here; then it
  // counts here as closed as often.
  bool CatchUp(const LinkKey& key, uint64_t theirs);

  // See UcxTransport::addresses and UcxTransport::Reaches.
  std::vector<UcxAddressBlob> For(PeerId peer) const;
  bool Reaches(const std::string& kind) const;

 private:
  mutable Mutex mutex_;
  std::vector<UcxAddressBlob> addresses_ ABSL_GUARDED_BY(mutex_);  // by worker
  // By link of a worker that can be closed by force.
  absl::flat_hash_map<LinkKey, uint64_t> closings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ferry
