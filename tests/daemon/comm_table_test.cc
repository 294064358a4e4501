// SPDX-License-Identifier: Apache-2.0
// Communicators that do not end: what waits for them, and for how long.
#include "daemon/comm_table.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <memory>
#include <thread>

#include "base/check.h"
#include "tests/daemon/home.h"

namespace ferry::testing {
namespace {

const Clique kClique{GlobalDeviceId(0), GlobalDeviceId(9)};

// A table with one GPU of the fake CUDA, which leads a clique whose other rank never comes.
class Table {
 public:
  Table() {
    setenv("FERRY_CUDA_LIBRARY", FAKE_CUDA_LIBRARY, 1);
    const auto found = FindGpus(FAKE_CUDA_LIBRARY);
    FERRY_CHECK(found.ok() && !found->empty());
    devices_.gpus.push_back(std::make_unique<CudaDevice>(FAKE_CUDA_LIBRARY, (*found)[0],
                                                         std::vector<int>{(*found)[0].ordinal}));
    auto device = std::make_unique<LocalDevice>();
    device->id = kClique.low;
    device->gpu = devices_.gpus[0].get();
    device->memory = std::make_unique<SerialExecutor>("memory");
    device->lane = std::make_unique<Lane>("lane", Lane::DefaultSpin());
    device->nccl = std::make_unique<NcclTransport>(*device->lane, NcclTransport::Hooks{});
    devices_.list.push_back(std::move(device));
    NcclOptions options;
    options.api = *LoadNccl(FAKE_NCCL_LIBRARY, {});
    CommTable::Hooks hooks;
    hooks.made_id = [this](const Clique&, uint32_t, std::string) { made_id_ = true; };
    hooks.failed = [](const Clique&, uint32_t, const absl::Status&) {};
    hooks.incarnation = [](GlobalDeviceId) { return Incarnation{}; };
    table_ = std::make_unique<CommTable>(control, devices_, options, std::move(hooks));
  }
  // Until its opener has met NCCL.
  void Open() {
    table_->Open({kClique, 1, PeerId(1), kClique.low, {}});
    while (!made_id_) Run();
  }
  void Abort() {
    table_->End({kClique, 1, Error(absl::StatusCode::kAborted, Reason::kCommAborted, "a test")});
  }
  void Close() { table_->End({kClique, 1, absl::OkStatus()}); }
  // What is posted, and what is due.
  void Run() {
    control.RunAll();
    table_->OnTime(control.Now());
    std::this_thread::yield();
  }
  bool gone() const { return table_->cache().List().empty(); }
  bool empty() const { return table_->cache().List()[0].state == CommState::kFailed; }

  ManualExecutor control;

 private:
  bool made_id_ = false;
  LocalDevices devices_;
  std::unique_ptr<CommTable> table_;
};

TEST(CommTableDeathTest, OneThatCannotBeEndedEndsTheProcessWithItsStory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        setenv("FERRY_FAKE_NCCL", "abort_gate=/dev/null", 1);  // closed for good
        Table table;
        table.Open();
        table.Abort();
        table.control.Advance(CommTable::kGiveUp - absl::Milliseconds(1));
        for (int i = 0; i < 100; ++i) table.Run();
        fprintf(stderr, "alive at last. ");
        table.control.Advance(absl::Milliseconds(1));
        table.Run();
      },
      "alive at last. (.|\n)*attempt 1 of the communicator of the clique of devices 0 and 9 could "
      "not be ended within 30s: this process ends\nflight recorder");
}

TEST(CommTableTest, OneThatEndsInTimeIsGone) {
  Table table;
  table.Open();
  table.Abort();
  while (!table.empty()) table.Run();
  table.control.Advance(2 * CommTable::kGiveUp);
  table.Run();
}

// As a peer may order it that is out of step.
TEST(CommTableTest, OneThatIsClosedWhileItOpensIsGone) {
  Table table;
  table.Open();
  table.Close();
  while (!table.gone()) table.Run();
  table.control.Advance(2 * CommTable::kGiveUp);
  table.Run();
}

}  // namespace
}  // namespace ferry::testing
