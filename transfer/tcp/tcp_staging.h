// SPDX-License-Identifier: Apache-2.0
// TcpStaging gives the chunks of a GPU's ops host memory, and has them while they are copied. It
// refuses memory when there is none, and to a link whose sends have their share, so that one peer
// does not take the memory of all. It knows nothing of connections: TcpSends and TcpReceives make
// chunks, and say what becomes of a copied one.
//
// Home: the lane. Owner: TcpTransport. Owns a chunk from Copy() until Copied().
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "base/home.h"
#include "transfer/staging/host_staging.h"
#include "transfer/tcp/tcp_device_link.h"
#include "transfer/tcp/tcp_op.h"

namespace ferry {

class TcpStaging {
 public:
  // `staging`: null for a host device, whose bytes are not staged.
  explicit TcpStaging(GpuStaging* staging) : staging_(staging) {}

  // Whether the bytes of this lane's ops are staged. Nothing else is called if not, but GiveBack()
  // with no chunk.
  bool on() const { return staging_ != nullptr; }
  // A chunk of the op, with memory. Null: it can have none now.
  std::unique_ptr<TcpChunk> Take(TcpDeviceLink& link, TcpOp& op, uint64_t at, size_t size);
  // Copies the chunk from the GPU to its memory, or back. `over` is called when that is over, with
  // the chunk's message; chunk->owner is for it.
  void Copy(std::unique_ptr<TcpChunk> chunk, void (*over)(HostStaging::Message&));
  // The chunk of a copy that is over, from within `over`.
  std::unique_ptr<TcpChunk> Copied(HostStaging::Message& message);
  // Gives back the chunk's memory. Does nothing for none.
  void GiveBack(std::unique_ptr<TcpChunk> chunk);
  // Until all copies are over.
  void Finish();

  // Sends of the link wait for memory.
  void Want(TcpDeviceLink& link);
  // Takes out the link that has waited longest; there are wanting() links.
  TcpDeviceLink& TakeWanting();
  size_t wanting() const { return wanting_.size(); }
  // The link's peer is gone.
  void Forget(TcpDeviceLink& link);

 private:
  GpuStaging* const staging_;
  std::deque<TcpDeviceLink*> wanting_;  // links with sends that have no memory yet
  // By message that is being copied.
  absl::flat_hash_map<HostStaging::Message*, std::unique_ptr<TcpChunk>> copying_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
