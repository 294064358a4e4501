// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/admin_rows.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "daemon/rpc/status_proto.h"
#include "transfer/members.h"

namespace ferry {

namespace pb = admin::v1;

void SetOwn(const LocalDevice& device, pb::ClusterDevice* out) {
  out->set_arenas(device.arenas);
  out->set_arena_bytes(device.arena_bytes);
  if (device.gpu == nullptr) return;
  const GpuInfo& info = device.gpu->info();
  const CudaDevice::Usage usage = device.gpu->usage();
  out->set_memory_bytes(info.bytes);
  out->set_context(usage.context);
  out->set_released(usage.released);
  out->set_model(info.name);
  out->set_pci(info.pci);
  out->set_numa_node(info.numa);
}

void SetAsked(const LocalDevice& gpu, const LocalDevices& all, const Nvml* nvml,
              pb::ClusterDevice* out) {
  const std::optional<uint64_t> free = gpu.gpu->FreeBytes();
  out->set_memory_known(free.has_value());
  out->set_memory_free_bytes(free.value_or(0));
  const std::string uuid = gpu.gpu->info().uuid_text();
  std::vector<std::string> others;
  for (const auto& other : all.list) {
    if (other->gpu == nullptr || other->id == gpu.id) continue;
    pb::GpuLink* const link = out->add_gpu_links();
    link->set_global_device_id(other->id.value());
    if (const auto can = gpu.gpu->HasPeerAccess(other->gpu->info().ordinal)) {
      link->set_peer_access(*can);
    }
    others.push_back(other->gpu->info().uuid_text());
  }
  std::vector<std::optional<int>> nvlinks(others.size());
  if (nvml != nullptr) {
    nvlinks = nvml->NvlinksTo(uuid, others);
    // Drivers older than CUDA 12.2 do not know where a GPU is.
    if (out->numa_node() < 0) out->set_numa_node(nvml->NumaNodeOf(uuid).value_or(-1));
  }
  for (size_t i = 0; i < nvlinks.size(); ++i) {
    out->mutable_gpu_links(static_cast<int>(i))->set_nvlinks(nvlinks[i].value_or(-1));
  }
}

void SetTime(absl::Time time, google::protobuf::Timestamp* out) {
  const int64_t seconds = absl::ToUnixSeconds(time);
  out->set_seconds(seconds);
  out->set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
}

std::string FingerprintText(uint64_t fingerprint) {
  return absl::StrCat(absl::Hex(fingerprint, absl::kZeroPad16));
}

void SetPeer(const PeerTable::Row& row, absl::Time now, pb::Peer* out) {
  out->set_node(row.node);
  out->set_address(row.address);
  out->set_state(row.state);
  out->set_incarnation(row.incarnation.value());
  out->set_version(row.version);
  out->set_error(row.error);
  out->set_mapped(row.mapped);
  out->set_draining(row.drains_until.has_value());
  if (row.drains_until && *row.drains_until != absl::InfiniteFuture()) {
    SetDuration(std::max(*row.drains_until - now, absl::ZeroDuration()), out->mutable_drains_for());
  }
  for (const GlobalDeviceId id : row.devices) out->add_global_device_ids(id.value());
}

void SetSession(const Session& session, const RunTime& running, absl::Time now, pb::Session* out) {
  const SessionUse use = session.use();
  SetDuration(session.run_time().gpu + running.gpu, out->mutable_gpu_time());
  SetDuration(session.run_time().host + running.host, out->mutable_host_time());
  out->set_session_id(session.id().value());
  out->set_name(session.name());
  out->set_pid(session.credentials().pid);
  out->set_uid(session.credentials().uid);
  SetDuration(now - session.opened(), out->mutable_age());
  out->set_arenas(use.arenas);
  out->set_bytes(use.bytes);
  out->set_transfers_in_flight(use.transfers_in_flight);
  out->set_transfers_ok(session.endings().transfers_ok());
  out->set_transfers_failed(session.endings().transfers_failed());
  out->set_closing(session.client_gone);
  struct Sum {
    uint64_t arenas = 0, bytes = 0;
  };
  std::map<std::pair<MemoryKind, bool>, Sum> kinds;
  for (const Arena* arena : session.arenas().List()) {
    Sum& sum = kinds[{arena->kind, arena->imported}];
    ++sum.arenas;
    sum.bytes += arena->bytes;
  }
  for (const auto& [kind, sum] : kinds) {
    pb::SessionMemory* row = out->add_memory();
    row->set_memory(static_cast<v1::ArenaMemory>(kind.first));
    row->set_imported(kind.second);
    row->set_arenas(sum.arenas);
    row->set_bytes(sum.bytes);
  }
}

void SetTransfer(const TransferRow& row, absl::Time now, SessionTable& sessions,
                 pb::TransferRow* out) {
  out->set_session_id(SessionOf(row.transfer).value());
  out->set_transfer_id(SequenceOf(row.transfer));
  out->set_side(row.side == Side::kSend ? "send" : "receive");
  SetKey(row.key, out);
  out->set_bytes(row.bytes);
  out->set_state(row.state);
  out->set_route(static_cast<v1::Route>(row.route));
  SetDuration(now - row.posted, out->mutable_age());
  out->set_waits_for(row.waits_for);
  out->set_prepared(row.prepared);
  if (row.prepared) {
    PreparedView view = sessions.Find(SessionOf(row.transfer))->prepared().ViewOf(row);
    out->set_firings(view.firings);
    if (view.fired.has_value()) out->set_fired(*view.fired);
    out->set_waits_for(std::move(view.waits_for));
  }
}

void SetJobs(const JobTable& jobs, absl::Time now, size_t limit, pb::ListJobsResponse* out) {
  for (const JobTable::Row& row : jobs.List(limit)) SetJob(row, now, out->add_jobs());
  out->set_total_jobs(jobs.in_flight());
  const auto& programs = jobs.programs().programs();
  for (const auto& program : programs) {
    if (static_cast<size_t>(out->programs_size()) == limit) break;
    SetProgram(*program, out->add_programs());
  }
  out->set_total_programs(programs.size());
}

void SetBarred(const BarredProgram& program, pb::BarredProgramRow* out) {
  out->set_fingerprint(program.fingerprint);
  out->set_global_device_id(program.device.value());
  out->set_gpu(program.gpu);
  out->set_target(program.target);
  out->set_uid(program.uid);
  out->set_session_id(SessionOf(program.job).value());
  out->set_job_id(SequenceOf(program.job));
  SetTime(program.when, out->mutable_time());
  out->set_error(Printable(program.what));
  out->set_suspects(program.suspects);
  out->set_losses(program.losses);
}

void SetMembers(const TransferDriver& driver, absl::Time now, size_t limit,
                pb::ListMembersResponse* out) {
  const Members::Places& places = driver.engine().view().members().places();
  out->set_total_rows(places.size());
  for (const auto& [where, place] : places) {
    if (static_cast<size_t>(out->rows_size()) == limit) return;
    pb::MembersRow* row = out->add_rows();
    row->set_global_device_id(where.device.value());
    row->set_node(driver.NodeName(place.owner));
    row->set_domain_fingerprint(DomainFingerprint(where.domain));
    row->set_count(place.count);
    row->set_lost(place.lost);
    for (const Members::Member& member : place.members) {
      pb::Member* one = row->add_members();
      one->set_session_id(member.session.value());
      one->set_name(Printable(member.name));
    }
    if (place.count > 0) continue;
    row->set_last(Printable(place.last));
    SetDuration(now - place.left, row->mutable_left_ago());
  }
}

void SetReloaded(const Reloaded& reloaded, pb::ReloadResponse* response) {
  response->set_generation(reloaded.generation);
  for (const ConfigChange& change : reloaded.changes) {
    pb::SettingChange* row = response->add_changes();
    row->set_setting(change.setting);
    row->set_before(change.before);
    row->set_after(change.after);
    row->set_by_new_sessions(change.taken == Taken::kByNewSessions);
  }
}

void SetEvent(const FlightRecorder::Entry& event, pb::FlightEvent* out) {
  out->set_number(event.number);
  SetTime(absl::FromUnixNanos(event.realtime_nanos), out->mutable_time());
  out->set_what(event.what);
  if (event.transfer) {
    out->set_session_id(SessionOf(TransferId(event.a)).value());
    out->set_transfer_id(SequenceOf(TransferId(event.a)));
  } else {
    out->set_transfer_id(event.a);
  }
  out->set_b(event.b);
  out->set_c(event.c);
  out->set_text(Printable(event.text));  // the text may be cut within a character
  if (event.key != 0) out->set_fingerprint(FingerprintText(event.key));
}

void SetComm(const CommRow& row, absl::Time now, pb::Comm* out) {
  out->set_low_device_id(row.clique.low.value());
  out->set_high_device_id(row.clique.high.value());
  out->set_device_id(row.device.value());
  out->set_attempt(row.attempt);
  out->set_state(CommStateName(row.state));
  SetDuration(now - row.since, out->mutable_age());
  SetDuration(now - row.last_used, out->mutable_idle());
  SetDuration(row.open_took, out->mutable_open_took());
  out->set_bytes(row.bytes);
  out->set_groups(row.groups);
  out->set_moved_bytes(row.moved);
  out->set_running(row.running);
  out->set_low_incarnation(row.low.value());
  out->set_high_incarnation(row.high.value());
  out->set_error(row.error);
}

void SetJob(const JobTable::Row& row, absl::Time now, pb::JobRow* out) {
  out->set_session_id(SessionOf(row.job).value());
  out->set_job_id(SequenceOf(row.job));
  out->set_global_device_id(row.device.value());
  out->set_fingerprint(row.fingerprint);
  out->set_bytes(row.bytes);
  out->set_scratch_bytes(row.scratch);
  out->set_state(row.state);
  SetDuration(now - row.posted, out->mutable_age());
  out->set_waits_for(row.waits_for);
  out->set_prepared(row.prepared);
  out->set_firings(row.firings);
  SetDuration(row.run_time.host + row.run_time.gpu, out->mutable_run_time());
}

void SetProgram(const CompiledProgram& program, pb::ProgramRow* out) {
  out->set_fingerprint(program.fingerprint);
  out->set_ops(program.ops);
  uint64_t bytes = 0;
  for (const compute::Buffer& buffer : program.buffers) {
    bytes = compute::SaturatingAdd(bytes, buffer.bytes);
  }
  out->set_bytes(bytes);
  out->set_scratch_bytes(program.scratch_bytes());
  if (program.gpu) out->set_waiting_kernels(program.gpu->waiting());
  out->set_flops(program.cost.flops);
}

}  // namespace ferry
