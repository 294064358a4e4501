// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/comm_control.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/duration.h"
#include "base/status.h"

namespace ferry::bench {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

// Those that are failed are gone, and stay in the list for people.
bool Lives(const admin::v1::Comm& comm) { return comm.state() != "failed"; }

}  // namespace

absl::StatusOr<CommControl> CommControl::Open(const Nodes& nodes, int count) {
  std::vector<tools::AdminClient> admins;
  for (int node = 0; node < count; ++node) {
    tools::Globals globals;
    globals.runtime_dir = nodes.RuntimeDir(node);
    ASSIGN_OR_RETURN(tools::AdminClient admin, tools::AdminClient::Open(globals));
    admins.push_back(std::move(admin));
  }
  return CommControl(std::move(admins));
}

absl::StatusOr<admin::v1::ListCommsResponse> CommControl::List(int node) {
  admin::v1::ListCommsResponse response;
  RETURN_IF_ERROR(admins_[node].Call([&](auto& stub, auto* context) {
    return stub.ListComms(context, admin::v1::ListCommsRequest(), &response);
  }));
  return response;
}

absl::Status CommControl::Await(int node, absl::string_view what, const Found& found) {
  const absl::Time until = absl::Now() + kPatience;
  while (true) {
    ASSIGN_OR_RETURN(const admin::v1::ListCommsResponse comms, List(node));
    if (found(comms)) return absl::OkStatus();
    if (absl::Now() < until) continue;
    return Error(absl::StatusCode::kDeadlineExceeded, Reason::kNotReady,
                 absl::StrCat("node ", node, " has ", what, " after ", DurationText(kPatience),
                              ": ", tools::MessageJson(comms)));
  }
}

absl::Status CommControl::Warm(uint64_t low, uint64_t high) {
  admin::v1::WarmCommRequest request;
  request.set_device_id(low);
  request.set_other_device_id(high);
  admin::v1::WarmCommResponse response;
  RETURN_IF_ERROR(admins_[0].Call(
      [&](auto& stub, auto* context) { return stub.WarmComm(context, request, &response); }));
  for (int node = 0; node < static_cast<int>(admins_.size()); ++node) {
    RETURN_IF_ERROR(Await(node, "no open communicator", [](const auto& comms) {
      return std::any_of(comms.comms().begin(), comms.comms().end(),
                         [](const auto& comm) { return comm.state() == "open"; });
    }));
  }
  return absl::OkStatus();
}

absl::Status CommControl::Abort(uint64_t low, uint64_t high) {
  ASSIGN_OR_RETURN(const uint32_t attempt, Attempt(0));
  admin::v1::AbortCommRequest request;
  request.set_device_id(low);
  request.set_other_device_id(high);
  request.set_attempt(attempt);
  admin::v1::AbortCommResponse response;
  RETURN_IF_ERROR(admins_[0].Call(
      [&](auto& stub, auto* context) { return stub.AbortComm(context, request, &response); }));
  for (int node = 0; node < static_cast<int>(admins_.size()); ++node) {
    RETURN_IF_ERROR(AwaitGone(node, attempt));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> CommControl::Attempt(int node) {
  ASSIGN_OR_RETURN(const admin::v1::ListCommsResponse comms, List(node));
  uint32_t latest = 0;
  for (const admin::v1::Comm& comm : comms.comms()) latest = std::max(latest, comm.attempt());
  return latest;
}

absl::Status CommControl::AwaitGone(int node, uint32_t attempt) {
  return Await(node, "a communicator that was ended", [&](const auto& comms) {
    return std::none_of(comms.comms().begin(), comms.comms().end(),
                        [&](const auto& comm) { return Lives(comm) && comm.attempt() <= attempt; });
  });
}

absl::Status CommControl::AwaitRunning(int node) {
  return Await(node, "no group on its GPU", [](const auto& comms) {
    return std::any_of(comms.comms().begin(), comms.comms().end(),
                       [](const auto& comm) { return comm.running() > 0; });
  });
}

absl::StatusOr<CommControl::Opened> CommControl::WhatOpeningTook() {
  Opened opened;
  for (int node = 0; node < static_cast<int>(admins_.size()); ++node) {
    ASSIGN_OR_RETURN(const admin::v1::ListCommsResponse comms, List(node));
    for (const admin::v1::Comm& comm : comms.comms()) {
      if (!Lives(comm)) continue;
      opened.took = std::max(opened.took, absl::Seconds(comm.open_took().seconds()) +
                                              absl::Nanoseconds(comm.open_took().nanos()));
      opened.bytes = std::max(opened.bytes, comm.bytes());
    }
  }
  return opened;
}

}  // namespace ferry::bench
