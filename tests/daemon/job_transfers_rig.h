// SPDX-License-Identifier: Apache-2.0
// A JobTable whose jobs send and receive by themselves; the transfers are only played.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "tests/daemon/job_table_rig.h"

namespace ferry::testing {

// A program that sends 2 * x, and stores what it receives minus x.
inline constexpr char kExchange[] =
    "program 1\n"
    "buffer @x read 64\n"
    "buffer @y write 64\n"
    "%x = input @x : f32[16]\n"
    "%two = add %x, %x\n"
    "send %two peer=\"other\" key=\"k\"\n"
    "%r = recv peer=\"other\" key=\"k\" : f32[16]\n"
    "%y = subtract %r, %x\n"
    "store @y, %y\n";

class JobTransfersRig : public JobTableTest {
 protected:
  using JobTableTest::JobTableTest;
  void SetUp() override {
    session_ = rig_.Open(kConnection);
    arena_ = rig_.RegisterGood(kConnection, 4096);
    for (int i = 0; i < 16; ++i) Floats(arena_, 0)[i] = static_cast<float>(i);
  }
  PostBatch Exchange(uint64_t y = 64, const std::string& suffix = "") {
    PostBatch batch;
    AddRun(batch, Fingerprint(kExchange), {{"x", At(arena_, 0)}, {"y", At(arena_, y)}});
    batch.jobs[0].peers = {{"other", GlobalDeviceId(7)}};
    batch.jobs[0].key_suffix = suffix;
    batch.specs[0].route = Route::kMapped;
    return batch;
  }
  TransferId Posted(Side side) {
    for (const auto& [id, spec] : posted_) {
      if (spec.side == side) return id;
    }
    ADD_FAILURE() << "none";
    return {};
  }
  void Run() {
    do {
      rig_.Settle();
      RunAll();
    } while (rig_.control.RunAll() > 0);
  }
  void Over(TransferId id, absl::Status status = absl::OkStatus()) {
    const TransferSpec& spec = posted_.at(id);
    Ended ended;
    ended.transfer = id;
    ended.side = spec.side;
    ended.bytes = spec.bytes;
    ended.layout = spec.layout;
    ended.status = std::move(status);
    OnOver(ended);
    Run();
  }
  float* Memory(TransferId id) {
    const Range& range = posted_.at(id).layout.extents()[0];
    return Floats(range.arena, range.offset);
  }

  Session* session_ = nullptr;
  ArenaId arena_;
};

}  // namespace ferry::testing
