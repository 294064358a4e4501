// SPDX-License-Identifier: Apache-2.0
#include "daemon/dump.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/flight_recorder.h"

namespace ferry {
namespace {
constexpr size_t kTransfersShown = 10'000;
}  // namespace

std::string DumpState(const std::string& node, Incarnation incarnation, absl::Time now,
                      const LocalDevices& devices, const PeerTable& peers, SessionTable& sessions,
                      const TransferEngine& engine, const JobTable& jobs) {
  std::string out;
  absl::StrAppend(&out, "node ", node, " ", incarnation.ToString(), " version ", FERRY_VERSION,
                  "\n");
  absl::StrAppend(&out, "devices\n");
  for (const auto& device : devices.list) {
    absl::StrAppend(&out, "  ", device->id.ToString(), " ", device->name, " arenas ",
                    device->arenas, " bytes ", device->arena_bytes, " ucx ",
                    device->ucx == nullptr ? "no" : "yes");
    if (device->gpu != nullptr) {
      const CudaDevice::Usage usage = device->gpu->usage();
      absl::StrAppend(&out, " uuid ", device->gpu->info().uuid_text(), " context ",
                      usage.context ? "yes" : "no", " holds ", usage.holds,
                      usage.released ? " released" : "");
    }
    absl::StrAppend(&out, "\n");
  }
  absl::StrAppend(&out, "peers\n");
  for (const PeerTable::Row& row : peers.List()) {
    absl::StrAppend(&out, "  ", row.node, " ", row.address, " ", row.state, " mapped ",
                    row.mapped ? "yes" : "no", row.error.empty() ? "" : " error: ", row.error,
                    "\n");
  }
  absl::StrAppend(&out, "sessions\n");
  for (const Session* session : sessions.List()) {
    const SessionUse use = session->use();
    absl::StrAppend(&out, "  ", session->id().ToString(), " name ", session->name(), " pid ",
                    session->credentials().pid, " uid ", session->credentials().uid, " arenas ",
                    use.arenas, " bytes ", use.bytes, " in flight ", use.transfers_in_flight,
                    " kept ", session->kept_bytes(), " ok ", session->transfers_ok(), " failed ",
                    session->transfers_failed(), session->closing ? " closing" : "", "\n");
    for (const Arena* arena : session->ListArenas()) {
      absl::StrAppend(&out, "    ", arena->id.ToString(), " ", arena->device.ToString(), " bytes ",
                      arena->bytes, arena->imported ? " imported" : "", " transfers ",
                      arena->transfers, "\n");
    }
  }
  absl::StrAppend(&out, "transfers ", engine.in_flight(), " offers waiting ",
                  engine.waiting_offers(), " messages ignored ", engine.ignored_messages(), "\n");
  for (const TransferEngine::Row& row : engine.List(kTransfersShown)) {
    absl::StrAppend(&out, "  ", SessionOf(row.transfer).ToString(), " transfer ",
                    SequenceOf(row.transfer), " ", row.side == Side::kSend ? "send" : "receive",
                    " ", row.key.source.value(), "->", row.key.destination.value(), " key ",
                    PrintableKey(row.key.key), " domain ", DomainFingerprint(row.key.domain),
                    " bytes ", row.bytes, " ", row.state, " route ", RouteName(row.route), " age ",
                    absl::StrFormat("%.3fs", absl::ToDoubleSeconds(now - row.posted)),
                    " waits for ");
    if (row.prepared) {
      const SessionTable::PreparedView view = sessions.ViewPrepared(row);
      absl::StrAppend(&out, view.waits_for, " prepared batch ", row.batch, " firings ",
                      view.firings, "\n");
    } else {
      absl::StrAppend(&out, row.waits_for, "\n");
    }
  }
  absl::StrAppend(&out, "programs ", jobs.programs().programs().size(), " jobs ", jobs.in_flight(),
                  "\n");
  for (const JobTable::Row& row : jobs.List(kTransfersShown)) {
    absl::StrAppend(&out, "  ", SessionOf(row.job).ToString(), " job ", SequenceOf(row.job), " on ",
                    row.device.ToString(), " program ",
                    absl::BytesToHexString(row.fingerprint.substr(0, 4)), " bytes ", row.bytes,
                    " scratch ", row.scratch, " ", row.state, " age ",
                    absl::StrFormat("%.3fs", absl::ToDoubleSeconds(now - row.posted)),
                    row.prepared ? absl::StrCat(" firings ", row.firings) : "", " waits for ",
                    row.waits_for, "\n");
  }
  absl::StrAppend(&out, "flight recorder\n", FlightRecorder::Get().Dump());
  return out;
}

}  // namespace ferry
