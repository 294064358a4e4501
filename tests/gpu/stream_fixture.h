// SPDX-License-Identifier: Apache-2.0
// Two ends of transfers between GPUs, with a stream of this process for each. The producer's stream
// makes the bytes; the consumer's takes what came and leaves poison behind. One thread.
#pragma once

#include <cstdint>

#include "tests/gpu/gpu_fixture.h"

namespace ferry::testing {

class GpuStreamTest : public GpuTest, public ::testing::WithParamInterface<GpuCase> {
 protected:
  bool StartEnds(uint64_t bytes) {
    if (!StartFor(GetParam())) return false;
    source_ = OpenSource(GetParam(), bytes);
    destination_ = OpenDestination(GetParam(), bytes);
    producer_ = MakeStream(source_);
    consumer_ = MakeStream(destination_);
    made_ = Pinned(bytes);
    seen_ = Pinned(bytes);
    return true;
  }
  void CloseEnds() override {
    source_ = {};
    destination_ = {};
  }
  // On the producer's stream: writes the bytes of `seed`.
  void Produce(uint64_t seed) {
    FillPattern(made_, source_.arena.bytes(), seed);
    Upload(source_, made_, producer_);
  }
  void Upload(const End& end, const char* from, CUstream stream) {
    EXPECT_CU(driver_->cuCtxSetCurrent(driver_->context(cuda::Device(end.arena))));
    EXPECT_CU(driver_->cuMemcpyHtoDAsync(Address(end.arena), from, end.arena.bytes(), stream));
  }
  // On the consumer's stream: copies what it finds to `seen_`, and overwrites it with poison.
  void Consume() {
    EXPECT_CU(driver_->cuCtxSetCurrent(driver_->context(cuda::Device(destination_.arena))));
    EXPECT_CU(driver_->cuMemcpyDtoHAsync(seen_, Address(destination_.arena),
                                         destination_.arena.bytes(), consumer_));
    EXPECT_CU(driver_->cuMemsetD8Async(Address(destination_.arena), 0xa5,
                                       destination_.arena.bytes(), consumer_));
  }
  Transfer Half(const End& of, uint64_t remote) const {
    return Transfer(remote, "k", {of.arena.All()});
  }
  PostOptions options() const {
    PostOptions options;
    options.route = GetParam().route;
    return options;
  }

  End source_, destination_;
  CUstream producer_ = nullptr, consumer_ = nullptr;
  char* made_ = nullptr;
  char* seen_ = nullptr;
};

}  // namespace ferry::testing
