// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/device_buffers.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/ferryctl/failure.h"

namespace ferry::tools {
namespace {

constexpr int kHostKind = 1;
constexpr int kGpuKind = 2;

bool IsGpu(const ferry_session* session, uint64_t device) {
  for (size_t i = 0; i < ferry_session_devices(session); ++i) {
    const ferry_device known = ferry_session_device(session, i);
    if (known.global_device_id == device) return known.kind == kGpuKind;
  }
  return false;
}

std::optional<uint64_t> HostDevice(const ferry_session* session) {
  for (size_t i = 0; i < ferry_session_devices(session); ++i) {
    const ferry_device known = ferry_session_device(session, i);
    if (known.kind == kHostKind) return known.global_device_id;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<DeviceBuffers> DeviceBuffers::Make(ferry_session* session, uint64_t device,
                                                  uint64_t bytes, absl::Duration patience) {
  DeviceBuffers made;
  made.session_ = session;
  made.device_ = device;
  made.bytes_ = std::max<uint64_t>(bytes, 1);
  made.patience_ = patience;
  ASSIGN_OR_RETURN(made.arena_, CreateArena(session, device, made.bytes_));
  if (!IsGpu(session, device)) return made;
  const std::optional<uint64_t> host = HostDevice(session);
  if (!host) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kDeviceUnknown,
                 absl::StrCat("reach memory of GPU ", device, " from files: node ",
                              ferry_session_node(session),
                              " has no host device to copy by; give it one (devices.host)"));
  }
  made.host_device_ = *host;
  ASSIGN_OR_RETURN(made.host_, CreateArena(session, *host, made.bytes_));
  return made;
}

std::byte* DeviceBuffers::data() const { return DataOf(host_ != nullptr ? host_ : arena_); }

absl::Status DeviceBuffers::Copy(uint64_t from, const ArenaPtr& source, uint64_t to,
                                 const ArenaPtr& destination, const char* what) const {
  if (host_ == nullptr) return absl::OkStatus();
  // Of this session alone: others may copy between the same devices.
  const std::string key = absl::StrCat("ferryctl-", what, "-", ferry_session_id(session_));
  const auto transfer = [&](uint64_t remote, const ferry_range* range) {
    ferry_transfer made = {};
    made.remote_device = remote;
    made.key = key.data();
    made.key_bytes = key.size();
    made.ranges = range;
    made.range_count = 1;
    return made;
  };
  const ferry_range read = {source.get(), 0, bytes_};
  const ferry_range written = {destination.get(), 0, bytes_};
  const ferry_transfer send = transfer(to, &read);
  const ferry_transfer receive = transfer(from, &written);
  ferry_batch* posted = nullptr;
  RETURN_IF_ERROR(FromFerry(ferry_cross_host_receive(session_, to, &receive, 1, nullptr, &posted)));
  const BatchPtr received(posted);
  RETURN_IF_ERROR(FromFerry(ferry_cross_host_send(session_, from, &send, 1, nullptr, &posted)));
  const BatchPtr sent(posted);
  RETURN_IF_ERROR(Wait(received, patience_));
  return Wait(sent, patience_);
}

}  // namespace ferry::tools
