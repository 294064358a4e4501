// SPDX-License-Identifier: Apache-2.0
// What tests on GPUs share: daemons with one host device and one or two GPUs each, sessions with an
// arena on either kind of device, and streams of this process. A test that needs a GPU, or two, and
// finds fewer skips and says so. One thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ferry/cuda.hpp"
#include "tests/gpu/driver/gpu_driver.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {

// Where the two ends of a transfer are.
struct GpuCase {
  const char* name;
  int route;
  bool one_node;
  bool source_on_host;
  bool destination_on_host;
  bool same_gpu;              // two sessions of one GPU
  const char* transfer = "";  // inside `transfer: { }`
  int gpus() const { return same_gpu || source_on_host || destination_on_host ? 1 : 2; }
};
inline void PrintTo(const GpuCase& gpu_case, std::ostream* out) { *out << gpu_case.name; }

extern const GpuCase kGpuLocal, kGpuMapped, kGpuNccl, kGpuSelf, kGpuHostToGpu, kGpuToHost,
    kGpuHostToGpuMapped, kGpuTcp, kGpuHostToGpuTcp, kGpuToHostTcp, kGpuUcx, kGpuUcxShm, kGpuUcxTcp;

// The fake's settings of the daemons, over this process's; for the environment of StartNodes. A
// real driver knows none of them.
std::vector<std::string> FakeWith(const std::string& more);

class GpuTest : public ClusterTest {
 protected:
  void SetUp() override;
  void TearDown() override;

  // False, and the test is skipped, if there are fewer GPUs.
  bool Need(int gpus);
  // The same if the daemons, which run, found no UCX.
  bool NeedUcx();
  // One daemon with all GPUs that a test needs, or two with one each.
  void StartNodes(int nodes, int gpus, const std::string& transfer = "",
                  std::vector<std::string> environment = {});
  // The same, or several daemons, with other options.
  void StartNodes(int nodes, int gpus, ClusterOptions options);
  // Nodes and ends for a case.
  bool StartFor(const GpuCase& gpu_case, std::vector<std::string> environment = {});
  End OpenSource(const GpuCase& gpu_case, uint64_t bytes);
  End OpenDestination(const GpuCase& gpu_case, uint64_t bytes);
  // An end on GPU `gpu` of node `node`, or on its host device (-1).
  End Open(size_t node, int gpu, uint64_t bytes, const std::string& name = "test");

  // A stream of the context of `end`'s GPU, which is current from then on.
  CUstream MakeStream(const End& end);
  // Until all that was queued on it has run.
  CUresult Synchronize(CUstream stream);
  // A fixture's own sessions, which must be gone before the daemons are looked at.
  virtual void CloseEnds() {}
  // Host memory that GPUs reach.
  char* Pinned(uint64_t bytes);
  CUdeviceptr Address(const Arena& arena, uint64_t offset = 0) const {
    return reinterpret_cast<CUdeviceptr>(arena.data()) + offset;
  }
  bool fake() const;

  const GpuDriver* driver_ = nullptr;

 private:
  std::map<CUstream, CUcontext> streams_;
  std::vector<char*> pinned_;
};

#define ASSERT_CU(call)                                                   \
  do {                                                                    \
    const CUresult ferry_result = (call);                                 \
    ASSERT_EQ(ferry_result, CUDA_SUCCESS) << driver_->Name(ferry_result); \
  } while (false)
#define EXPECT_CU(call)                                                   \
  do {                                                                    \
    const CUresult ferry_result = (call);                                 \
    EXPECT_EQ(ferry_result, CUDA_SUCCESS) << driver_->Name(ferry_result); \
  } while (false)

}  // namespace ferry::testing
