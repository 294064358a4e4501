// SPDX-License-Identifier: Apache-2.0
#include "daemon/dump.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/duration.h"
#include "base/flight_recorder.h"
#include "base/printable.h"
#include "base/version.h"

namespace ferry {
namespace {
constexpr size_t kTransfersShown = 10'000;

// Joins lines. Each stays one line, whatever others have said in it.
class Lines {
 public:
  template <typename... Parts>
  void Add(const Parts&... parts) {
    absl::StrAppend(&text_, Printable(absl::StrCat(parts...)), "\n");
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};
}  // namespace

std::string DumpState(const std::string& node, Incarnation incarnation, absl::Time now,
                      const LocalDevices& devices, const PeerTable& peers, SessionTable& sessions,
                      const EngineView& transfers, const JobTable& jobs) {
  Lines out;
  out.Add("node ", node, " ", incarnation.ToString(), " version ", Version());
  out.Add("devices");
  for (const auto& device : devices.list) {
    std::string gpu;
    if (device->gpu != nullptr) {
      const CudaDevice::Usage usage = device->gpu->usage();
      gpu = absl::StrCat(" uuid ", device->gpu->info().uuid_text(), " context ",
                         usage.context ? "yes" : "no", " holds ", usage.holds,
                         usage.released ? " released" : "");
    }
    out.Add("  ", device->id.ToString(), " ", device->name, " arenas ", device->arenas, " bytes ",
            device->arena_bytes, " ucx ", device->Has(Route::kUcx) ? "yes" : "no", gpu);
  }
  out.Add("peers");
  for (const PeerTable::Row& row : peers.List()) {
    out.Add("  ", row.node, " ", row.address, " ", row.state, row.drains_until ? " drains" : "",
            " mapped ", row.mapped ? "yes" : "no", row.error.empty() ? "" : " error: ", row.error);
  }
  out.Add("sessions");
  for (const Session* session : sessions.List()) {
    const SessionUse use = session->use();
    out.Add("  ", session->id().ToString(), " name ", session->name(), " pid ",
            session->credentials().pid, " uid ", session->credentials().uid, " arenas ", use.arenas,
            " bytes ", use.bytes, " in flight ", use.transfers_in_flight, " kept ",
            session->record_bytes(), " ok ", session->endings().transfers_ok(), " failed ",
            session->endings().transfers_failed(), session->client_gone ? " closing" : "");
    for (const Arena* arena : session->arenas().List()) {
      out.Add("    ", arena->id.ToString(), " ", arena->device.ToString(), " bytes ", arena->bytes,
              arena->imported ? " imported" : "", " transfers ", arena->transfers);
    }
  }
  out.Add("transfers ", transfers.in_flight(), " offers waiting ", transfers.waiting_offers(),
          " messages ignored ", transfers.ignored_messages());
  for (const TransferRow& row : transfers.List(kTransfersShown)) {
    std::string waits_for = row.waits_for;
    if (row.prepared) {
      const PreparedView view = sessions.Find(SessionOf(row.transfer))->prepared().ViewOf(row);
      waits_for =
          absl::StrCat(view.waits_for, " prepared batch ", row.batch, " firings ", view.firings);
    }
    out.Add("  ", SessionOf(row.transfer).ToString(), " transfer ", SequenceOf(row.transfer), " ",
            row.side == Side::kSend ? "send" : "receive", " ", row.key.source.value(), "->",
            row.key.destination.value(), " key ", PrintableKey(row.key.key), " domain ",
            DomainFingerprint(row.key.domain), " bytes ", row.bytes, " ", row.state, " route ",
            RouteName(row.route), " age ", DurationText(now - row.posted), " waits for ",
            waits_for);
  }
  out.Add("programs ", jobs.programs().programs().size(), " jobs ", jobs.in_flight());
  for (const JobTable::Row& row : jobs.List(kTransfersShown)) {
    out.Add("  ", SessionOf(row.job).ToString(), " job ", SequenceOf(row.job), " on ",
            row.device.ToString(), " program ",
            absl::BytesToHexString(row.fingerprint.substr(0, 4)), " bytes ", row.bytes, " scratch ",
            row.scratch, " ", row.state, " age ", DurationText(now - row.posted),
            row.prepared ? absl::StrCat(" firings ", row.firings) : "", " waits for ",
            row.waits_for);
  }
  out.Add("flight recorder");
  for (const absl::string_view event :
       absl::StrSplit(FlightRecorder::Get().Dump(), '\n', absl::SkipEmpty())) {
    out.Add(event);
  }
  return out.Take();
}

}  // namespace ferry
