// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/ends.h"

#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "tools/ferryctl/format.h"

namespace ferry::tools {
namespace {

namespace admin = ferry::admin::v1;

constexpr uint32_t kAll = std::numeric_limits<uint32_t>::max();

absl::Status Bad(absl::StatusCode code, Reason reason, const std::string& text) {
  return Error(code, reason, absl::StrCat("transfers cancel: ", text));
}

// The sessions that have a transfer or job in flight, by its id in the session.
absl::StatusOr<std::map<uint64_t, std::set<uint64_t>>> SessionsById(AdminClient& client) {
  std::map<uint64_t, std::set<uint64_t>> sessions;
  admin::ListTransfersRequest transfers;
  transfers.set_limit(kAll);
  admin::ListTransfersResponse in_flight;
  RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
    return stub.ListTransfers(context, transfers, &in_flight);
  }));
  for (const auto& row : in_flight.transfers()) {
    sessions[row.transfer_id()].insert(row.session_id());
  }
  admin::ListJobsRequest jobs;
  jobs.set_limit(kAll);
  admin::ListJobsResponse running;
  RETURN_IF_ERROR(client.Call(
      [&](auto& stub, auto* context) { return stub.ListJobs(context, jobs, &running); }));
  for (const auto& row : running.jobs()) sessions[row.job_id()].insert(row.session_id());
  return sessions;
}

absl::StatusOr<admin::CancelTransfersRequest> RequestFor(AdminClient& client,
                                                         const std::vector<std::string>& ids) {
  admin::CancelTransfersRequest request;
  std::map<uint64_t, std::set<uint64_t>> sessions;  // asked for at most once
  for (const std::string& text : ids) {
    const std::vector<std::string> parts = absl::StrSplit(text, '/');
    uint64_t session = 0, id = 0;
    if (parts.size() > 2 || !absl::SimpleAtoi(parts.back(), &id) ||
        (parts.size() == 2 && !absl::SimpleAtoi(parts.front(), &session))) {
      return Bad(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                 absl::StrCat("'", text, "' is not an id, which is ", kCancelledIds));
    }
    if (parts.size() == 1) {
      if (sessions.empty()) {
        ASSIGN_OR_RETURN(sessions, SessionsById(client));
      }
      const std::set<uint64_t>& of_id = sessions[id];
      if (of_id.empty()) {
        return Bad(absl::StatusCode::kNotFound, Reason::kTransferNotFound,
                   absl::StrCat("no session has a transfer or job ", id, " in flight; an id is ",
                                kCancelledIds));
      }
      if (of_id.size() > 1) {
        return Bad(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                   absl::StrCat("several sessions have a transfer ", id, "; say which: ",
                                absl::StrJoin(of_id, ", ", [id](std::string* out, uint64_t one) {
                                  absl::StrAppend(out, one, "/", id);
                                })));
      }
      session = *of_id.begin();
    }
    admin::TransferRef* const ref = request.add_transfers();
    ref->set_session_id(session);
    ref->set_transfer_id(id);
  }
  return request;
}

}  // namespace

absl::StatusOr<int> CancelTransfers(AdminClient& client, const Globals& globals,
                                    const std::vector<std::string>& ids) {
  ASSIGN_OR_RETURN(const admin::CancelTransfersRequest request, RequestFor(client, ids));
  admin::CancelTransfersResponse response;
  RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
    return stub.CancelTransfers(context, request, &response);
  }));
  PrintAnswer(
      globals, response,
      absl::StrCat(response.requested(), " asked to end",
                   response.over() > 0 ? absl::StrCat(", ", response.over(), " were over") : ""));
  return kExitOk;
}

absl::StatusOr<int> EndSession(AdminClient& client, const Globals& globals, uint64_t session) {
  admin::CloseSessionRequest request;
  request.set_session_id(session);
  admin::CloseSessionResponse response;
  RETURN_IF_ERROR(client.Call(
      [&](auto& stub, auto* context) { return stub.CloseSession(context, request, &response); }));
  PrintAnswer(globals, response,
              absl::StrCat("session ", session, " closed, with ", HumanCount(response.in_flight()),
                           " in flight"));
  return kExitOk;
}

}  // namespace ferry::tools
