// SPDX-License-Identifier: Apache-2.0
// Shared by tests on GPUs: daemons with one host device and one or two GPUs each, sessions with an
// arena on either kind of device, and streams of this process. A test that needs more GPUs than
// there are skips and says so. One thread.
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
  bool same_gpu;              // both ends are sessions on one GPU
  const char* transfer = "";  // configuration inside `transfer: { }`
  int gpus() const { return same_gpu || source_on_host || destination_on_host ? 1 : 2; }
};
inline void PrintTo(const GpuCase& gpu_case, std::ostream* out) { *out << gpu_case.name; }

extern const GpuCase kGpuLocal, kGpuMapped, kGpuNccl, kGpuSelf, kGpuHostToGpu, kGpuToHost,
    kGpuHostToGpuMapped, kGpuTcp, kGpuHostToGpuTcp, kGpuToHostTcp, kGpuUcx, kGpuUcxShm, kGpuUcxTcp;

// The environment for StartNodes with which the daemons' fake CUDA has these settings, on top of
// those of this process. A real driver ignores them.
std::vector<std::string> FakeWith(const std::string& more);

class GpuTest : public ClusterTest {
 protected:
  void SetUp() override;
  void TearDown() override;

  // False, and the test is skipped, if there are fewer GPUs.
  bool Need(int gpus);
  // False, and the test is skipped, if the running daemons found no UCX.
  bool NeedUcx();
  // Starts one daemon with all GPUs, or two daemons with one GPU each.
  void StartNodes(int nodes, int gpus, const std::string& transfer = "",
                  std::vector<std::string> environment = {});
  // The same, also for more daemons, with other options.
  void StartNodes(int nodes, int gpus, ClusterOptions options);
  // Starts the nodes for a case; the other two open its ends.
  bool StartFor(const GpuCase& gpu_case, std::vector<std::string> environment = {});
  End OpenSource(const GpuCase& gpu_case, uint64_t bytes);
  End OpenDestination(const GpuCase& gpu_case, uint64_t bytes);
  // Opens an end on GPU `gpu` of node `node`; -1: on its host device.
  End Open(size_t node, int gpu, uint64_t bytes, const std::string& name = "test");

  // A stream in the context of `end`'s GPU, which is current afterwards.
  CUstream MakeStream(const End& end);
  // Waits until everything that was queued on the stream has run.
  CUresult Synchronize(CUstream stream);
  // Closes a fixture's own sessions, which must be gone before the daemons are checked.
  virtual void CloseEnds() {}
  // Host memory that GPUs can reach.
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
