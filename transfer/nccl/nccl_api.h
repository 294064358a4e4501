// SPDX-License-Identifier: Apache-2.0
// The vendor table of NCCL: the functions of libnccl that Ferry calls, found at run time, so that a
// machine without NCCL has no route `nccl` and says why. The declarations are copied from NCCL's
// header as far as they are needed, since that comes neither with the driver nor with the toolkit.
// Tests open a fake by its path. Constant after LoadNccl(); any thread.
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
// The fields that all versions since 2.17 have: `size` and `version` say that there are no more.
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
  ncclResult_t (*CommRevoke)(ncclComm_t, int flags) = nullptr;  // null before NCCL 2.28
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
  std::string path;  // path of the library that was opened
  // The version as text: "2.28.9".
  std::string version_text() const;
};

// Opens NCCL. Before that it sets the environment, which NCCL reads at its first use. The
// configuration's `environment` overrides what the process was given. Unless either says otherwise
// it sets NCCL_RAS_ENABLE=0, because RAS would have a thread and a port of its own, and, if
// `interface` is not "", NCCL_SOCKET_IFNAME to "=" and the interface, which NCCL takes as its whole
// name, so that NCCL's sockets, which believe whoever connects, are where the links are.
// ROUTE_UNAVAILABLE says what is missing. `library` "" means libnccl.so.2.
absl::StatusOr<const NcclApi*> LoadNccl(const std::string& library,
                                        const std::map<std::string, std::string>& environment,
                                        const std::string& interface = "");

// All NCCL_* variables of the process's environment, as "NAME=value", sorted: operators need these
// first.
std::vector<std::string> NcclEnvironment();

// The status that `result` means for a caller that was `doing` something: ABORTED/COMM_ABORTED.
absl::Status NcclError(const NcclApi& api, ncclResult_t result, absl::string_view doing);

// The most CTAs (channels) for a communicator; 0: NCCL chooses. `wanted` is the configuration's
// number. On GPUs of compute capability 10 NCCL 2.28 takes more than it should: there at most 32,
// unless the operator gives a number, in the configuration or in NCCL's environment.
int MaxCtas(int wanted, int version, int compute_major,
            const std::vector<std::string>& environment);

// The most CTAs of a communicator whose two ranks allow `ours` and `theirs`. 0, as an argument or
// as the result: no bound. Both ranks must take the same number: NCCL sets up its channels by it.
int AgreedCtas(int ours, int theirs);

// The configuration of a blocking communicator with at most `max_ctas` CTAs; 0: NCCL chooses.
ncclConfig_t BlockingConfig(int max_ctas);

}  // namespace ferry
