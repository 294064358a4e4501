// SPDX-License-Identifier: Apache-2.0
#include "daemon/local_devices.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status.h"

namespace ferry {
namespace {

absl::StatusOr<std::unique_ptr<HostMapping>> MapMemfd(const MemoryShare& share,
                                                      std::vector<UniqueFd> fds,
                                                      HostMapping::Access access) {
  if (fds.size() != 1) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                 absl::StrCat("one file descriptor must come with a memfd, ", fds.size(), " did"));
  }
  return HostMapping::Map(std::move(fds[0]), share.bytes, access);
}

}  // namespace

LocalDevice::~LocalDevice() {
  while (!transports_.empty()) transports_.pop_back();
}

void LocalDevice::AddTransport(std::initializer_list<Route> routes, Serves serves,
                               std::unique_ptr<Transport> transport) {
  for (const Route route : routes) {
    OfRoute& of = by_route_[static_cast<size_t>(route)];
    if (serves != Serves::kArmed) of.posted = transport.get();
    if (serves != Serves::kPosted) of.armed = transport.get();
  }
  transports_.push_back(std::move(transport));
}

DeviceInfo LocalDevice::info() const {
  return {id, name, gpu != nullptr, gpu == nullptr ? "" : gpu->info().uuid};
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> LocalDevice::Map(const MemoryShare& share,
                                                               std::vector<UniqueFd> fds,
                                                               bool ours) const {
  const bool memfd = share.kind == MemoryKind::kMemfd;
  if (ours && gpu == nullptr && !memfd) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                 absl::StrCat(id.ToString(), " is a host device: its memory is a memfd"));
  }
  if (gpu != nullptr && !(memfd && !ours)) return gpu->Map(share, std::move(fds), ours);
  if (!memfd) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
                 absl::StrCat(id.ToString(), " is a host device and cannot map a GPU's memory"));
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<HostMapping> mapping,
      MapMemfd(share, std::move(fds),
               ours ? HostMapping::Access::kReadWrite : HostMapping::Access::kReadOnly));
  if (ours) return mapping;
  mapping->Populate();
  if (gpu != nullptr) {
    if (auto registration = gpu->Register(*mapping, /*read_only=*/true); registration.ok()) {
      mapping->Keep(*std::move(registration));
    } else {
      FERRY_LOG_LIMITED(warn, "gpu.pin", LogFields("device", id),
                        "a peer's host memory is copied by way of the driver's buffers, which is "
                        "slower: {}",
                        std::string(registration.status().message()));
    }
  }
  return mapping;
}

std::string LocalDevices::Shown() const {
  return absl::StrJoin(list, ", ", [](std::string* out, const auto& device) {
    absl::StrAppend(out, device->id.value());
  });
}

}  // namespace ferry
