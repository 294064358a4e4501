// SPDX-License-Identifier: Apache-2.0
// This daemon's GPUs: chooses those that are found, that the configuration names, and that it can
// lock; makes what a GPU's lane has that no other lane has, and the threads that compute on GPUs.
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status.h"
#include "compute/cuda/compile/packaged_kernels.h"
#include "daemon/daemon_impl.h"
#include "device/copier.h"
#include "transfer/nccl/nccl_api.h"
#include "transfer/nccl/nccl_transport.h"
#include "transfer/staging/host_staging.h"

namespace ferry {
namespace {

// One directory for all daemons of a machine, whoever runs them; /run/lock exists for this.
constexpr const char* kLockDirectories[] = {"/run/lock", "/tmp"};

// The daemon holds the lock as long as it lives, however it ends: a GPU belongs to one daemon. Any
// user may lock the file, because the next daemon may be another user's. The file is never removed,
// because a daemon that has just opened it would then lock a file that is gone.
absl::StatusOr<UniqueFd> LockGpu(const GpuInfo& gpu) {
  const std::string doing = absl::StrCat("lock ", gpu.uuid_text());
  for (const char* directory : kLockDirectories) {
    const std::string path = absl::StrCat(directory, "/ferry-", gpu.uuid_text(), ".lock");
    constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW;
    UniqueFd lock(open(path.c_str(), kFlags));
    if (!lock.valid() && errno == ENOENT) {
      lock.Reset(open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0444));
      if (lock.valid()) {
        // Sets the mode whatever the umask is. Only of a file that was just made: in a directory
        // that everybody may write to, the name could be a hard link to another file of ours.
        fchmod(lock.get(), 0444);
      } else if (errno == EEXIST) {
        lock.Reset(open(path.c_str(), kFlags));  // another daemon has made it first
      } else {
        continue;  // the directory does not exist, or we may not write there
      }
    }
    // A lock in another directory would not exclude the daemon that has this one.
    if (!lock.valid()) {
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
    // The UUID of a MIG instance has a prefix of its own.
    if (index ? gpu.ordinal == ordinal : gpu.uuid_text().substr(4) == name.substr(4)) return &gpu;
  }
  return nullptr;
}

// The directories of compiled kernels that a package brings: those that the setting names, where
// they are of use to a driver of this version, "CUDA 13.0".
std::vector<std::string> PackagedKernels(const std::string& setting, absl::string_view driver) {
  const std::string path = setting.empty() ? compute::FindPackagedKernels() : setting;
  if (path.empty() || path == "none") return {};
  const absl::Status good = compute::CheckPackagedKernels(path, absl::StripPrefix(driver, "CUDA "));
  if (good.ok()) return {path};
  FERRY_LOG(warn, "kernels.packaged", "{}", std::string(good.message()));
  return {};
}

std::unique_ptr<BarredPrograms> OpenBarred(const std::string& path) {
  auto barred = std::make_unique<BarredPrograms>(path);
  for (const std::string& warning : barred->warnings()) {
    FERRY_LOG(warn, "programs.barred", "{}", warning);
  }
  if (barred->size() > 0) {
    FERRY_LOG(warn, "programs.barred",
              "{} do not run on GPUs, since a GPU was lost at them (ferryctl program barred)",
              barred->size());
  }
  return barred;
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
    // A GPU that is listed twice: its own lock would refuse it as if another daemon had it.
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

Daemon::Impl::ComputeThread::ComputeThread(Impl& daemon, const std::string& name,
                                           std::unique_ptr<Computer> computer)
    : runner(
          std::move(computer),
          JobRunner::MostKept{daemon.config.limits.job_bytes, daemon.config.limits.job_memory},
          [this](const Doorbell& bell, bool hear) { hear ? lane.Hear(bell) : lane.Unhear(bell); },
          [&daemon](TransferId job, absl::Status why) {
            daemon.control.PostOrRun(
                [&daemon, job, why = std::move(why)] { daemon.jobs->OnFiringFailed(job, why); });
          }),
      lane(name, Lane::DefaultSpin()) {
  lane.Post([this] { lane.AddPoller(&runner); });
}

void Daemon::Impl::MakeGpuCompute() {
  barred = OpenBarred(Path("barred-programs"));
  bar_at_loss = std::make_unique<BarAtLoss>(*barred);
  std::string driver;
  for (const auto& device : devices.list) {
    if (device->gpu == nullptr) continue;
    const GpuInfo& gpu = device->gpu->info();
    if (!compute::GpuArchOf(gpu.major, gpu.minor).ok()) continue;  // it runs no programs
    driver = gpu.driver;
    if (cublaslt == nullptr) {
      cublaslt = std::make_unique<const compute::CublasLtLibrary>(config.devices.cublaslt_library,
                                                                  gpu.driver_version);
    }
    multipliers[device->id] = std::make_unique<compute::GpuMultiplier>(*device->gpu, *cublaslt);
    auto computer = std::make_unique<GpuComputer>(*device->gpu, cublaslt.get());
    bar_at_loss->Add(device->id, *computer);
    gpu_compute[device->id] = std::make_unique<ComputeThread>(
        *this, absl::StrCat("compute ", device->id.value()), std::move(computer));
  }
  if (gpu_compute.empty()) return;
  compute::KernelStore::Options options;
  options.compiler.program = compute::FindCompiler();
  options.compiler.nvrtc = config.devices.nvrtc_library;
  options.cache = config.devices.kernel_cache;
  options.packaged = PackagedKernels(config.devices.packaged_kernels, driver);
  options.tiers = true;
  options.problem = [](const std::string& text) { FERRY_LOG(warn, "kernels.full", "{}", text); };
  kernels = std::make_unique<compute::KernelStore>(std::move(options));
  for (const std::string& warning : kernels->warnings()) {
    FERRY_LOG(warn, "kernels.cache", "{}", warning);
  }
}

void Daemon::Impl::MakeNccl(LocalDevice& device, OpSink sink) {
  device.max_ctas = MaxCtas(static_cast<int>(config.transfer.nccl.max_ctas), nccl.api->version,
                            device.gpu->info().major, NcclEnvironment());
  NcclTransport::Hooks hooks{
      .over =
          [this](std::vector<std::pair<uint64_t, absl::Status>> over) {
            control.PostOrRun([this, over = std::move(over)]() mutable {
              driver->OnGroupsOver(std::move(over));
            });
          },
      .failed =
          [this](Communicator* communicator, absl::Status why) {
            control.Post(
                [this, communicator, why] { driver->comms().OnFailed(communicator, why); });
          },
      .let_go =
          [this](const Communicator* communicator) {
            control.Post([this, communicator] { driver->comms().OnLetGo(communicator); });
          },
      .sink = std::move(sink),
      .wanted =
          [this](uint64_t bundle) {
            control.PostOrRun([this, bundle] { driver->OnFiringWanted(bundle); });
          }};
  nccl.transports[device.id] =
      device.Add({Route::kNccl}, LocalDevice::Serves::kArmed,
                 std::make_unique<NcclTransport>(*device.lane, std::move(hooks)));
}

std::function<void(absl::Time)> Daemon::Impl::SmsBusyHook(GlobalDeviceId device) {
  return [this, device](absl::Time until) {
    control.Post([this, device, until] { driver->OnSmsBusy(device, until); });
  };
}

absl::Status Daemon::Impl::MakeStaging(LocalDevice& device) {
  ASSIGN_OR_RETURN(const absl::Span<std::byte> memory,
                   device.gpu->MakeStaging(
                       2 * std::max<uint64_t>(config.transfer.staging, 2 * HostStaging::kBlock)));
  GpuStaging::Parts parts{.out = device.gpu->MakeCopier(CopyUse::kStageOut, SmsBusyHook(device.id)),
                          .in = device.gpu->MakeCopier(CopyUse::kStageIn, SmsBusyHook(device.id)),
                          .memory = memory,
                          .enter = [&cuda = *device.gpu] { cuda.MakeCurrent(); }};
  device.staging = std::make_unique<GpuStaging>(*device.lane, std::move(parts));
  return absl::OkStatus();
}

}  // namespace ferry
