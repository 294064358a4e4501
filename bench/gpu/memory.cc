// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/memory.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "bench/gpu/bare_program.h"
#include "bench/gpu/peer_copy.h"
#include "tools/ferryctl/bench_end.h"

namespace ferry::bench {
namespace {

// A daemon closes a context that nobody needs any more by itself.
constexpr absl::Duration kPatience = absl::Seconds(5);

}  // namespace

absl::StatusOr<DeviceMemory> MeasureDeviceMemory(const testing::GpuDriver& driver, int device,
                                                 uint64_t before, const std::string& self,
                                                 const std::string& client_dir,
                                                 uint64_t global_id) {
  constexpr int64_t kArena = int64_t{2} << 20;  // one granule
  const auto used = [&] {
    return static_cast<int64_t>(before) - static_cast<int64_t>(driver.FreeBytes(device));
  };
  const auto open = [&]() -> absl::StatusOr<tools::BenchEnd> {
    tools::SessionOptions options;
    options.client_dir = client_dir;
    ASSIGN_OR_RETURN(tools::BenchEnd end,
                     tools::BenchEnd::Open(options, {}, static_cast<int64_t>(global_id)));
    RETURN_IF_ERROR(end.MakeArena(kArena, 0));
    return end;
  };
  DeviceMemory memory;
  memory.idle = used();
  {
    ASSIGN_OR_RETURN(const BareProgram bare, BareProgram::Start(self, device));
    memory.bare_context = used() - memory.idle;
  }
  // Its process has ended, and the driver takes its time.
  const absl::Time gone_by = absl::Now() + kPatience;
  for (int64_t now = memory.bare_context; now > memory.idle && absl::Now() < gone_by;) {
    now = used();
  }
  {
    ASSIGN_OR_RETURN(const tools::BenchEnd first, open());
    const int64_t one = used();
    ASSIGN_OR_RETURN(const tools::BenchEnd second, open());
    const int64_t two = used();
    memory.context = one - kArena - memory.idle;
    memory.session = two - kArena - one;
  }
  const absl::Time closed_by = absl::Now() + kPatience;
  do {
    memory.left = used();
  } while (memory.left > memory.idle && absl::Now() < closed_by);
  return memory;
}

}  // namespace ferry::bench
