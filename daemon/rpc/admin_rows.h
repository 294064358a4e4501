// SPDX-License-Identifier: Apache-2.0
// Turns rows of the daemon's tables into the messages that operators see: one row, one message.
// Must be called on control, like what it reads, except SetAsked.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "base/flight_recorder.h"
#include "daemon/comm_table.h"
#include "daemon/job/job_table.h"
#include "daemon/local_devices.h"
#include "daemon/peer/peer_table.h"
#include "daemon/reload_queue.h"
#include "daemon/session/session_table.h"
#include "device/cuda/nvml.h"
#include "ferry/admin/v1/admin.pb.h"
#include "transfer/engine.h"
#include "transfer/transfer_row.h"

namespace ferry {

// Two halves of the message about an own device. SetOwn: what control knows. SetAsked: what NVML,
// or else the driver, must be asked; call it on the GPU's memory thread. `nvml` is null if there is
// no NVML.
void SetOwn(const LocalDevice& device, admin::v1::ClusterDevice* out);
void SetAsked(const LocalDevice& gpu, const LocalDevices& all, const Nvml* nvml,
              admin::v1::ClusterDevice* out);
void SetTime(absl::Time time, google::protobuf::Timestamp* out);
std::string FingerprintText(uint64_t fingerprint);
void SetPeer(const PeerTable::Row& row, absl::Time now, admin::v1::Peer* out);
// `running`: what the runs of its jobs that are not over have taken.
void SetSession(const Session& session, const RunTime& running, absl::Time now,
                admin::v1::Session* out);
void SetTransfer(const TransferRow& row, absl::Time now, SessionTable& sessions,
                 admin::v1::TransferRow* out);
void SetJob(const JobTable::Row& row, absl::Time now, admin::v1::JobRow* out);
void SetProgram(const CompiledProgram& program, admin::v1::ProgramRow* out);
// Lists at most `limit` rows, and says how many there are in all.
void SetJobs(const JobTable& jobs, absl::Time now, size_t limit, admin::v1::ListJobsResponse* out);
void SetBarred(const BarredProgram& program, admin::v1::BarredProgramRow* out);
void SetMembers(const TransferDriver& driver, absl::Time now, size_t limit,
                admin::v1::ListMembersResponse* out);
void SetReloaded(const Reloaded& reloaded, admin::v1::ReloadResponse* out);
void SetEvent(const FlightRecorder::Entry& event, admin::v1::FlightEvent* out);
void SetComm(const CommRow& row, absl::Time now, admin::v1::Comm* out);

// `row` is a TransferRow or an OfferRow.
template <typename Row>
void SetKey(const MatchKey& key, Row* row) {
  row->set_src_global_device_id(key.source.value());
  row->set_dst_global_device_id(key.destination.value());
  row->set_key(PrintableKey(key.key));
  row->set_domain_fingerprint(DomainFingerprint(key.domain));
  row->set_fingerprint(FingerprintText(MatchFingerprint(key)));
}

}  // namespace ferry
