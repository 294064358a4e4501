// SPDX-License-Identifier: Apache-2.0
// The fake daemon's gRPC service: what is asked about transfers that were posted.
#include "tests/client/fake/fake_daemon.h"

namespace ferry::testing {

grpc::Status FakeDaemon::CancelTransfers(grpc::ServerContext* context,
                                         const v1::CancelTransfersRequest* request,
                                         v1::CancelTransfersResponse* response) {
  std::lock_guard lock(mutex_);
  Session* session = Find(context);
  if (session == nullptr) return ToGrpc(MakeStatus(16, "SESSION_INVALID", "no session"));
  for (uint64_t id : request->transfer_ids()) {
    Transfer* transfer = session->transfers.at(id - 1 - session->before).get();
    if (transfer->over) {
      response->set_over(response->over() + 1);
      continue;
    }
    response->set_requested(response->requested() + 1);
    Finish(session, transfer,
           request->has_poison() ? MakeStatus(10, "POISONED", request->poison().message())
                                 : MakeStatus(1, "CANCELLED", "cancelled"));
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::GetTransfers(grpc::ServerContext* context,
                                      const v1::GetTransfersRequest* request,
                                      v1::GetTransfersResponse* response) {
  std::lock_guard lock(mutex_);
  Session* session = Find(context);
  if (session == nullptr) return ToGrpc(MakeStatus(16, "SESSION_INVALID", "no session"));
  for (uint64_t id : request->transfer_ids()) {
    const uint64_t index = id - 1 - session->before;
    if (index >= session->transfers.size()) {
      return ToGrpc(MakeStatus(5, "TRANSFER_NOT_FOUND", "no such transfer"));
    }
    const Transfer& transfer = *session->transfers[index];
    auto* out = response->add_transfers();
    out->set_transfer_id(id);
    out->set_state(transfer.over       ? v1::TRANSFER_STATE_OVER
                   : Matched(transfer) ? v1::TRANSFER_STATE_MATCHED
                                       : v1::TRANSFER_STATE_WAITING);
    if (transfer.over) *out->mutable_status() = transfer.status;
    if (forget_ && transfer.status.code() != 0) {
      *out->mutable_status() = MakeStatus(5, "TRANSFER_NOT_FOUND", "how it ended is not known");
    }
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::WatchTransfers(grpc::ServerContext* context,
                                        const v1::WatchTransfersRequest* request,
                                        grpc::ServerWriter<v1::WatchTransfersResponse>* writer) {
  uint64_t next = request->after_event();
  std::unique_lock lock(mutex_);
  Session* session = Find(context);
  if (session == nullptr) return ToGrpc(MakeStatus(16, "SESSION_INVALID", "no session"));
  while (!killed_ && session->open && !context->IsCancelled()) {
    if (next == session->endings.size()) {
      changed_.wait_for(lock, std::chrono::milliseconds(20));
      continue;
    }
    v1::WatchTransfersResponse response;
    response.set_first_event(next + 1);
    for (; next < session->endings.size(); ++next) *response.add_ended() = session->endings[next];
    lock.unlock();
    writer->Write(response);
    lock.lock();
  }
  return grpc::Status::OK;
}

}  // namespace ferry::testing
