// SPDX-License-Identifier: Apache-2.0
// UcxStaging gives messages of a GPU host memory, and copies between the two: out before UCX gets a
// message, in once it has received one. What becomes of a copied message say UcxSends and
// UcxReceives.
//
// Home: the lane. Owner: UcxTransport. Owns nothing: a message has its memory.
#pragma once

#include <cstddef>

#include "base/home.h"
#include "transfer/staging/host_staging.h"
#include "transfer/ucx/ucx_records.h"

namespace ferry {

class UcxStaging {
 public:
  // `staging`: null for a host device, whose bytes are not staged.
  explicit UcxStaging(GpuStaging* staging) : staging_(staging) {}

  // Whether this lane's device is a GPU. If not, only Unstage() may be called.
  bool on() const { return staging_ != nullptr; }
  GpuStaging& gpu() {
    home_.Check();
    return *staging_;
  }
  // Bytes of the memory for all sends.
  size_t send_bytes() const { return staging_->out().bytes(); }
  // Whether there is memory for the op's next message.
  bool CanTake(const UcxOp& op) const;
  // Takes memory for the op's next message, and notes where its bytes are.
  void Stage(UcxMessage& message);
  // Gives the memory back, if the message has some.
  void Unstage(UcxMessage& message);
  // Copies a staged message; `over` is called when that is over, with message.staged, whose owner
  // is the message.
  void Copy(UcxMessage& message, void (*over)(HostStaging::Message&));
  // The message of a copy that is over, from within `over`.
  UcxMessage& Copied(HostStaging::Message& copied);

 private:
  HostStaging& Of(const UcxOp& op) const { return op.receive() ? staging_->in() : staging_->out(); }

  GpuStaging* const staging_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
