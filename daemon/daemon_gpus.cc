// SPDX-License-Identifier: Apache-2.0
// Which GPUs are this daemon's: those that are found, chosen by the configuration, and locked.
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/daemon_impl.h"

namespace ferry {
namespace {

// The same for all daemons of a machine, whoever runs them; /run/lock is there for this.
constexpr const char* kLockDirectories[] = {"/run/lock", "/tmp"};

// Held as long as the daemon lives, however it ends: a GPU belongs to one daemon. The file may be
// locked by any user, because the next daemon may be another user's; and it stays, because who has
// just opened it would lock a file that is not there any more.
absl::StatusOr<UniqueFd> LockGpu(const GpuInfo& gpu) {
  const std::string doing = absl::StrCat("lock ", gpu.uuid_text());
  for (const char* directory : kLockDirectories) {
    const std::string path = absl::StrCat(directory, "/ferry-", gpu.uuid_text(), ".lock");
    constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW;
    UniqueFd lock(open(path.c_str(), kFlags));
    if (!lock.valid() && errno == ENOENT) {
      lock.Reset(open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0444));
      if (lock.valid()) {
        // Whatever the umask is. Only what was just made: in a directory of everybody's the name
        // may be another one of a file of ours.
        fchmod(lock.get(), 0444);
      } else if (errno == EEXIST) {
        lock.Reset(open(path.c_str(), kFlags));  // another daemon was faster
      } else {
        continue;  // the directory is not there, or not ours to write to
      }
    }
    if (!lock.valid()) {  // elsewhere it would be locked beside whoever has this one
      return ErrnoError(absl::StatusCode::kPermissionDenied, Reason::kConfigInvalid,
                        absl::StrCat(doing, ": ", path, " is taken or not ours"), errno);
    }
    if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
    return Error(absl::StatusCode::kAlreadyExists, Reason::kConfigInvalid,
                 absl::StrCat(doing, ": another daemon has it (", path,
                              "); give each daemon its own GPUs by devices.gpus"));
  }
  return ErrnoError(absl::StatusCode::kPermissionDenied, Reason::kConfigInvalid, doing, errno);
}

const GpuInfo* FindGpu(const std::vector<GpuInfo>& found, const std::string& name) {
  int ordinal = -1;
  const bool index = absl::SimpleAtoi(name, &ordinal);
  for (const GpuInfo& gpu : found) {
    // A MIG instance is said with its own prefix.
    if (index ? gpu.ordinal == ordinal : gpu.uuid_text().substr(4) == name.substr(4)) return &gpu;
  }
  return nullptr;
}

}  // namespace

absl::Status Daemon::Impl::GoWithoutGpus(const absl::Status& why) {
  if (!config.devices.all_gpus) return Annotate(why, "find the GPUs that the configuration names");
  gpus_missing = std::string(why.message());
  const size_t ids = config.GpuIds().value_or(0);
  if (ids > 0) {
    FERRY_LOG(err, "gpu.missing",
              "membership.nodes has ids for {} GPUs of this node, which serves without them until "
              "its next start: {}",
              ids, gpus_missing);
  }
  return absl::OkStatus();
}

absl::Status Daemon::Impl::MakeGpus() {
  const auto& wanted = config.devices;
  const std::optional<size_t> ids = config.GpuIds();
  if (wanted.all_gpus ? ids == 0 : wanted.gpus.empty()) {
    gpus_missing = "not looked for: the configuration has no place for them";
    return absl::OkStatus();
  }
  const absl::StatusOr<std::vector<GpuInfo>> found = FindGpus(wanted.cuda_library);
  if (!found.ok()) return GoWithoutGpus(found.status());
  std::vector<GpuInfo> chosen;
  const auto take = [&](const GpuInfo& gpu) -> absl::Status {
    if (!gpu.unusable.empty()) {
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kConfigInvalid,
                   absl::StrCat("use ", gpu.uuid_text(), ": ", gpu.unusable));
    }
    // Its own lock would keep this daemon out as if it were another's.
    if (std::any_of(chosen.begin(), chosen.end(),
                    [&](const GpuInfo& other) { return other.ordinal == gpu.ordinal; })) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kConfigInvalid,
                   absl::StrCat("use ", gpu.uuid_text(), ": devices.gpus names it twice (GPU ",
                                gpu.ordinal, " of the driver)"));
    }
    ASSIGN_OR_RETURN(UniqueFd lock, LockGpu(gpu));
    devices.gpu_locks.push_back(std::move(lock));
    chosen.push_back(gpu);
    return absl::OkStatus();
  };
  for (const std::string& name : wanted.gpus) {
    const GpuInfo* const gpu = FindGpu(*found, name);
    if (gpu == nullptr) {
      return Error(absl::StatusCode::kNotFound, Reason::kConfigInvalid,
                   absl::StrCat("find GPU ", name, " of devices.gpus: the driver shows ",
                                found->size(), " GPUs, and not this one"));
    }
    RETURN_IF_ERROR(take(*gpu));
  }
  for (size_t i = 0; wanted.all_gpus && i < found->size(); ++i) {
    if (ids.has_value() && chosen.size() == *ids) {
      FERRY_LOG(warn, "gpu.left_out", LogFields("uuid", (*found)[i].uuid_text()),
                "membership.nodes has no id for it");
    } else if (absl::Status taken = take((*found)[i]); !taken.ok()) {
      FERRY_LOG(warn, "gpu.left_out", LogFields("uuid", (*found)[i].uuid_text()), "{}",
                std::string(taken.message()));
      absl::StrAppend(&gpus_missing, gpus_missing.empty() ? "" : "; ", taken.message());
    }
  }
  if (ids.has_value() && chosen.size() != *ids) {
    return Error(absl::StatusCode::kNotFound, Reason::kConfigInvalid,
                 absl::StrCat("find GPUs: membership.nodes has ids for ", *ids, ", ", chosen.size(),
                              " can be had"));
  }
  if (absl::StatusOr<std::unique_ptr<Nvml>> opened = Nvml::Open(wanted.nvml_library); opened.ok()) {
    nvml = *std::move(opened);
  } else {
    FERRY_LOG(info, "gpu.nvml", "free memory of GPUs is not shown: {}",
              std::string(opened.status().message()));
  }
  std::vector<int> team;
  for (const GpuInfo& gpu : chosen) team.push_back(gpu.ordinal);
  for (GpuInfo& gpu : chosen) {
    FERRY_LOG(info, "gpu.found", LogFields("uuid", gpu.uuid_text(), "pci", gpu.pci), "{}, {} bytes",
              gpu.name, gpu.bytes);
    devices.gpus.push_back(
        std::make_unique<CudaDevice>(wanted.cuda_library, std::move(gpu), team, nvml.get()));
  }
  return absl::OkStatus();
}

}  // namespace ferry
