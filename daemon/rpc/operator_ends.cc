// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/operator_ends.h"

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/log.h"
#include "base/status.h"

namespace ferry {
namespace {

constexpr int kMaxCancelled = 4096;

// Null if there is no such session, or if it is closing. A number that is too large for an id names
// no session.
Session* FindSession(RpcCore& core, uint64_t id) {
  if (id > std::numeric_limits<uint32_t>::max()) return nullptr;
  Session* const session = core.sessions.Find(SessionId(static_cast<uint32_t>(id)));
  return session == nullptr || session->client_gone ? nullptr : session;
}

}  // namespace

absl::Status Cancel(RpcCore& core, const admin::v1::CancelTransfersRequest& request,
                    admin::v1::CancelTransfersResponse* response) {
  if (request.transfers_size() > kMaxCancelled) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBatchTooLarge,
                 absl::StrCat("cancel: ", request.transfers_size(), " transfers, at most ",
                              kMaxCancelled, " a call"));
  }
  std::map<SessionId, std::vector<uint64_t>> ids;
  for (const admin::v1::TransferRef& ref : request.transfers()) {
    const Session* const session = FindSession(core, ref.session_id());
    if (session == nullptr || !session->IsKnown(ref.transfer_id())) {
      return Error(
          absl::StatusCode::kNotFound, Reason::kTransferNotFound,
          absl::StrCat("cancel: there is no transfer ", ref.session_id(), "/", ref.transfer_id(),
                       " (session/id); ferryctl transfers lists those in flight"));
    }
    ids[session->id()].push_back(ref.transfer_id());
  }
  const absl::Status why = Error(absl::StatusCode::kCancelled, Reason::kCancelled,
                                 "cancelled by an operator (ferryctl transfers cancel)");
  TransferDriver::CancelCounts sum;
  for (const auto& [session, of_session] : ids) {
    const TransferDriver::CancelCounts counts =
        CancelOf(core, *core.sessions.Find(session), of_session, why);
    sum.requested += counts.requested;
    sum.over += counts.over;
  }
  FERRY_LOG(info, "operator.cancel", LogFields("requested", sum.requested, "over", sum.over),
            "transfers of {} sessions", ids.size());
  response->set_requested(sum.requested);
  response->set_over(sum.over);
  return absl::OkStatus();
}

absl::Status Close(RpcCore& core, const admin::v1::CloseSessionRequest& request,
                   admin::v1::CloseSessionResponse* response) {
  const Session* const session = FindSession(core, request.session_id());
  if (session == nullptr) {
    return Error(absl::StatusCode::kNotFound, Reason::kIdStale,
                 absl::StrCat("close: there is no session ", request.session_id(),
                              "; ferryctl sessions lists them"));
  }
  response->set_in_flight(session->use().transfers_in_flight);
  core.sessions.CloseByOperator(session->id());
  return absl::OkStatus();
}

absl::Status Release(BarredPrograms& barred, const admin::v1::ReleaseProgramsRequest& request,
                     admin::v1::ReleaseProgramsResponse* response) {
  const std::vector<std::string> named(request.fingerprints().begin(),
                                       request.fingerprints().end());
  if (named.size() > BarredPrograms::kMost) {
    return FieldError("fingerprints", absl::StrCat("release ", named.size(), " programs: at most ",
                                                   BarredPrograms::kMost, " are barred"));
  }
  ASSIGN_OR_RETURN(const size_t released,
                   named.empty() ? barred.ReleaseAll() : barred.Release(named));
  FERRY_LOG(info, "programs.released", "an operator let GPUs run {} barred programs again",
            released);
  response->set_released(static_cast<uint32_t>(released));
  return absl::OkStatus();
}

}  // namespace ferry
