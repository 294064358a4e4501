// SPDX-License-Identifier: Apache-2.0
#include "daemon/configured.h"

#include "daemon/process_limits.h"

namespace ferry {

SessionTable::Options SessionLimitsOf(const Config& config) {
  SessionTable::Options options;
  options.quota = {config.limits.session_bytes, config.limits.session_arenas,
                   config.limits.transfers_in_flight, kMaxBatchTransfers};
  options.default_deadline = config.transfer.deadline;
  options.failures_kept = config.limits.session_failures;
  options.sessions = config.limits.sessions;
  options.sessions_per_uid = config.limits.sessions_per_uid;
  options.session_kept_bytes = config.limits.session_kept_bytes;
  options.uid_kept_bytes = config.limits.uid_kept_bytes;
  options.gpu_bytes = config.limits.gpu_bytes;
  options.job_memory = config.limits.job_memory;
  return options;
}

TransferEngine::Bounds EngineBoundsOf(const Config& config) {
  TransferEngine::Bounds bounds;
  bounds.by_estimate = config.transfer.choose == RouteChoosing::kEstimate;
  bounds.offers_per_peer = config.limits.offers_per_peer;
  bounds.peer_kept_bytes = config.limits.peer_kept_bytes;
  bounds.group_time = config.transfer.nccl.group_time;
  return bounds;
}

JobLimits JobLimitsOf(const Config& config) {
  return {config.limits.job_bytes,
          config.limits.job_flops,
          JobThreads(config),
          config.limits.launch_flops,
          config.limits.gpu_launch_flops,
          absl::Milliseconds(config.limits.gpu_ms_per_second)};
}

}  // namespace ferry
