// SPDX-License-Identifier: Apache-2.0
// The vendor table of NCCL: what Ferry calls of libnccl, found at run time, so that a machine
// without NCCL is a route that says why it is missing. The declarations are NCCL's, as far as they
// are needed; its header is not, since it comes neither with the driver nor with the toolkit. Tests
// open a fake by its path. Constant after LoadNccl; any thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

extern "C" {
struct ncclComm;
typedef struct ncclComm* ncclComm_t;
typedef int ncclResult_t;    // an enum
typedef int ncclDataType_t;  // an enum
struct ncclUniqueId {
  char internal[128];
};
// What all versions since 2.17 have of it: `size` and `version` say that there is no more.
struct ncclConfig_t {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
};
}

namespace ferry {

inline constexpr ncclResult_t kNcclSuccess = 0;
inline constexpr ncclResult_t kNcclSystemError = 2;
inline constexpr ncclResult_t kNcclRemoteError = 6;
inline constexpr ncclResult_t kNcclInProgress = 7;
inline constexpr ncclDataType_t kNcclBytes = 1;  // ncclUint8

struct NcclApi {
  ncclResult_t (*GetVersion)(int*) = nullptr;
  ncclResult_t (*GetUniqueId)(ncclUniqueId*) = nullptr;
  ncclResult_t (*CommInitRankConfig)(ncclComm_t*, int ranks, ncclUniqueId, int rank,
                                     ncclConfig_t*) = nullptr;
  ncclResult_t (*CommAbort)(ncclComm_t) = nullptr;
  ncclResult_t (*CommRevoke)(ncclComm_t, int flags) = nullptr;  // null before 2.28
  ncclResult_t (*CommGetAsyncError)(ncclComm_t, ncclResult_t*) = nullptr;
  ncclResult_t (*GroupStart)() = nullptr;
  ncclResult_t (*GroupEnd)() = nullptr;
  ncclResult_t (*Send)(const void*, size_t count, ncclDataType_t, int peer, ncclComm_t,
                       void* stream) = nullptr;
  ncclResult_t (*Recv)(void*, size_t count, ncclDataType_t, int peer, ncclComm_t,
                       void* stream) = nullptr;
  const char* (*GetErrorString)(ncclResult_t) = nullptr;
  const char* (*GetLastError)(ncclComm_t) = nullptr;

  int version = 0;   // 22809
  std::string path;  // what was opened
  // "2.28.9".
  std::string version_text() const;
};

// Sets the environment first, which NCCL reads when it is first used: what the configuration says
// over what the process was given, and unless either says otherwise NCCL_RAS_ENABLE=0, because RAS
// would have a thread and a port of its own, and NCCL_SOCKET_IFNAME==`interface` (if that is not
// ""), so that its sockets, which believe whoever connects, are where the links are.
// ROUTE_UNAVAILABLE with
// what is missing. `library` "" means libnccl.so.2.
absl::StatusOr<const NcclApi*> LoadNccl(const std::string& library,
                                        const std::map<std::string, std::string>& environment,
                                        const std::string& interface = "");

// All NCCL_* of the process's environment, as "NAME=value", sorted: what an operator asks for
// first.
std::vector<std::string> NcclEnvironment();

// What `result` means for who was `doing` something: ABORTED/COMM_ABORTED.
absl::Status NcclError(const NcclApi& api, ncclResult_t result, absl::string_view doing);

// The most CTAs (channels) for a communicator; 0: NCCL's own choice. `wanted` is the
// configuration's. NCCL 2.28 takes more than it should on GPUs of compute capability 10: there at
// most 32, unless the operator has said a number, here or in NCCL's environment.
int MaxCtas(int wanted, int version, int compute_major,
            const std::vector<std::string>& environment);

// Of a communicator whose ranks are to have so many at most; 0: any number. Both must take the
// same: NCCL sets up its channels by it.
int AgreedCtas(int ours, int theirs);

// Of a blocking communicator with at most so many CTAs; 0: NCCL's own choice.
ncclConfig_t BlockingConfig(int max_ctas);

}  // namespace ferry
