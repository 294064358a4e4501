// SPDX-License-Identifier: Apache-2.0
// Communicators that cannot be opened or do not end: what waits for them, and for how long.
#include "daemon/comm_table.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "tests/daemon/home.h"

namespace ferry::testing {
namespace {

const Clique kClique{GlobalDeviceId(0), GlobalDeviceId(9)};
const Clique kOther{GlobalDeviceId(0), GlobalDeviceId(8)};  // of the same GPU

// Of the library that the table opens.
void ConfigureFakeCuda(const char* settings) {
  void* const library = dlopen(FAKE_CUDA_LIBRARY, RTLD_NOW);
  FERRY_CHECK(library != nullptr);
  const auto configure =
      reinterpret_cast<void (*)(const char*)>(dlsym(library, "fake_cuda_configure"));
  FERRY_CHECK(configure != nullptr);
  configure(settings);
}

bool HasThread(absl::string_view name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string line;
    std::ifstream comm(task.path() / "comm");
    if (std::getline(comm, line) && line == name) return true;
  }
  return false;
}

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
    NcclTransport::Hooks lane;
    lane.let_go = [this](const Communicator* communicator) {
      control.Post([this, communicator] {
        let_go_.push_back(communicator);
        if (!holds_lanes) LetGo();
      });
    };
    NcclOptions options;
    options.transports[device->id] =
        device->Add({Route::kNccl}, LocalDevice::Serves::kArmed,
                    std::make_unique<NcclTransport>(*device->lane, std::move(lane)));
    devices_.list.push_back(std::move(device));
    options.api = *LoadNccl(FAKE_NCCL_LIBRARY, {});
    CommTable::Hooks hooks;
    hooks.made_id = [this](const Clique&, uint32_t, std::string id) { id_ = std::move(id); };
    hooks.failed = [this](const Clique& clique, uint32_t, const absl::Status& why) {
      EXPECT_TRUE(failed.emplace(clique, why).second);
    };
    hooks.incarnation = [](GlobalDeviceId) { return Incarnation{}; };
    hooks.max_ctas = [](GlobalDeviceId) { return 0; };
    table_ = std::make_unique<CommTable>(control, devices_, options, std::move(hooks));
  }
  // Until its opener is in NCCL, where the fake has a socket under the unique id.
  void Open() {
    table_->Open({kClique, 1, PeerId(1), kClique.low, {}});
    while (id_.empty() || access(id_.c_str(), F_OK) != 0) Run();
  }
  // The other one before it is known what became of the first.
  void OpenBoth() {
    table_->Open({kClique, 1, PeerId(1), kClique.low, {}});
    control.Advance(absl::Seconds(2));  // so long nobody else opens
    table_->Open({kOther, 1, PeerId(1), kOther.low, {}});
  }
  void Abort(uint32_t attempt = 1, const Clique& clique = kClique) {
    table_->End(
        {clique, attempt, Error(absl::StatusCode::kAborted, Reason::kCommAborted, "a test")});
  }
  void Close() { table_->End({kClique, 1, absl::OkStatus()}); }
  void OpenNext() { table_->Open({kClique, 2, PeerId(1), kClique.low, {}}); }
  void Closing() { table_->Closing({kClique, 1}); }
  CommTable& table() { return *table_; }
  // What is posted, and what is due.
  void Run() {
    control.RunAll();
    table_->OnTime(control.Now());
    std::this_thread::yield();
  }
  void LetGo() {
    for (const Communicator* one : std::exchange(let_go_, {})) table_->OnLetGo(one);
  }
  bool waits_for_lane() const { return !let_go_.empty(); }
  bool gone() const { return table_->cache().List().empty(); }
  bool empty() const {
    const auto rows = table_->cache().List();
    return std::all_of(rows.begin(), rows.end(),
                       [](const auto& row) { return row.state == CommState::kFailed; });
  }

  ManualExecutor control;
  std::map<Clique, absl::Status> failed;
  bool holds_lanes = false;  // what they say does not come until LetGo

 private:
  std::vector<const Communicator*> let_go_;
  std::string id_;
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
      "not be ended within 30 s: this process ends\nflight recorder");
}

TEST(CommTableTest, OneThatEndsInTimeIsGone) {
  Table table;
  table.Open();
  table.Abort();
  while (!table.empty()) table.Run();
  table.control.Advance(2 * CommTable::kGiveUp);
  table.Run();
}

TEST(CommTableTest, OneThatItsLaneHasNotLetGoOfStays) {
  Table table;
  table.holds_lanes = true;
  table.Open();
  table.Close();
  while (!table.waits_for_lane() || HasThread("comm opener") || HasThread("comm reaper"))
    table.Run();
  table.Run();
  EXPECT_FALSE(table.gone());
  table.LetGo();
  while (!table.gone()) table.Run();
}

// The first one's opener makes the stream, on which the other one's groups would run too.
TEST(CommTableTest, WithoutAStreamNobodyOpensOnTheGpu) {
  Table table;
  ConfigureFakeCuda("memory_mib=32");  // less than its staging
  table.OpenBoth();
  while (table.failed.size() < 2) table.Run();
  for (const auto& [clique, why] : table.failed) {
    EXPECT_EQ(ReasonOf(why), Reason::kRouteUnavailable);
    EXPECT_THAT(std::string(why.message()), ::testing::HasSubstr("allocate")) << Describe(clique);
    table.Abort(1, clique);
  }
  while (!table.empty()) table.Run();
  ConfigureFakeCuda("memory_mib=1024");
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

TEST(CommTableTest, WhoIsToBeClosedIsShownSoAndNamedByItsAttempt) {
  using ::testing::HasSubstr;
  Table table;
  const auto state = [&](size_t row) { return table.table().cache().List().at(row).state; };
  const auto none = table.table().Named(kClique, 0);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(none.status()), Reason::kIdStale);
  EXPECT_EQ(table.table().NewestOf(kClique).status(), none.status());
  table.Open();
  EXPECT_EQ(*table.table().Named(kClique, 0), 1u);
  EXPECT_EQ(state(0), CommState::kOpening);
  table.Closing();
  EXPECT_EQ(state(0), CommState::kClosing);
  EXPECT_EQ(*table.table().Named(kClique, 0), 1u);
  table.OpenNext();
  const auto several = table.table().Named(kClique, 0);
  EXPECT_EQ(several.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(several.status().message()),
              HasSubstr("attempt 1 (closing), attempt 2 ("));
  EXPECT_EQ(*table.table().Named(kClique, 1), 1u);
  EXPECT_EQ(*table.table().Named(kClique, 2), 2u);
  EXPECT_EQ(*table.table().NewestOf(kClique), 2u);
  const auto unknown = table.table().Named(kClique, 3);
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("attempt 2 ("));
  table.Close();
  EXPECT_EQ(*table.table().Named(kClique, 0), 2u);
  while (table.table().cache().List().size() > 1) table.Run();
  table.Abort(2);
  while (!table.empty()) table.Run();
}

}  // namespace
}  // namespace ferry::testing
