// SPDX-License-Identifier: Apache-2.0
// ferry.admin.v1.AdminService of admin.sock: what operators see and do. Handlers run on gRPC's
// threads, convert, and post to control.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "daemon/config/config.h"
#include "daemon/drain.h"
#include "daemon/job/barred_programs.h"
#include "daemon/local_devices.h"
#include "daemon/peer/peer_table.h"
#include "daemon/reload_queue.h"
#include "daemon/rpc/core.h"
#include "device/cuda/nvml.h"

namespace ferry {

// What the service reaches of the daemon; owned by Daemon.
struct AdminCore {
  RpcCore& rpc;
  const Config& config;
  LocalDevices& devices;
  PeerTable& peers;
  Incarnation incarnation;
  absl::Time started;
  std::string ucx;       // its version, or why there is no UCX
  std::string gpus;      // how many GPUs there are, or why there are none
  std::string nccl;      // its version, or why there is no NCCL
  std::string programs;  // what runs programs on host devices
  BarredPrograms& barred;
  const Nvml* nvml;                   // null if there is no NVML
  std::function<std::string()> dump;  // on control
  // On control: as Drain's Join, Leave and TakeBack.
  std::function<Drain::Caller(absl::Duration timeout, Drain::Done done)> drain;
  std::function<bool(Drain::Caller)> leave_drain;
  std::function<absl::Status()> undrain;
  // Any thread: as ReloadQueue's Ask and generation.
  std::function<void(const ReloadQueue::Done&)> reload;
  std::function<uint64_t()> config_generation;
};

// `core` must outlive the server.
std::unique_ptr<grpc::Service> MakeAdminService(AdminCore& core);

}  // namespace ferry
