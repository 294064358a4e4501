// SPDX-License-Identifier: Apache-2.0
#include "tests/support/bad_client.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ferry::testing {
namespace {

constexpr uint64_t kArenaBytes = 1 << 20;

}  // namespace

BadClient::BadClient(std::string client_dir, uint64_t device, uint64_t remote, uint64_t seed,
                     bool lingers)
    : client_dir_(std::move(client_dir)),
      device_(device),
      remote_(remote),
      nonsense_(seed, lingers) {}

void BadClient::Attach() {
  session_ = std::make_unique<RawSession>(client_dir_);
  if (!session_->Hello("", "bad").has_welcome()) {
    session_.reset();
    return;
  }
  arena_ = session_->MakeArena(device_, kArenaBytes);
}

void BadClient::Step() {
  if (session_ == nullptr) Attach();
  if (session_ == nullptr) return;
  const uint64_t what = nonsense_.Below(100);
  if (what < 45) {
    SaySense();
  } else if (what < 80) {
    SayNonsense();
  } else if (what < 97) {
    CallNonsense();
  } else {
    session_.reset();
    return;
  }
  Read();
}

void BadClient::Read() {
  char byte = 0;
  while (session_ != nullptr) {
    const ssize_t got = recv(session_->socket().fd(), &byte, 1, MSG_DONTWAIT | MSG_TRUNC);
    if (got > 0) continue;
    if (got == 0) session_.reset();  // it was thrown out
    return;
  }
}

// Of the arena most of the time; strides and tables of any size.
void BadClient::FillBuffer(v1::Buffer& buffer) {
  const uint64_t arena = nonsense_.Chance(90) ? arena_ : nonsense_.Number();
  const uint64_t place = nonsense_.Chance(90) ? nonsense_.Below(kArenaBytes) : nonsense_.Number();
  switch (nonsense_.Below(3)) {
    case 0:
      for (uint64_t i = 0, count = nonsense_.Chance(5) ? 2000 : 1 + nonsense_.Below(3); i < count;
           ++i) {
        v1::BufferRange* const range = buffer.add_ranges();
        range->set_arena_id(arena);
        range->set_offset(place + i * nonsense_.Below(64));
        range->set_length(nonsense_.Chance(95) ? nonsense_.Below(64) : nonsense_.Number());
      }
      break;
    case 1: {
      v1::StridedRange* const strided = buffer.mutable_strided();
      strided->set_arena_id(arena);
      strided->set_block_bytes(nonsense_.Below(4));
      strided->set_stride_bytes(nonsense_.Below(8));
      strided->set_count(nonsense_.Chance(20) ? 1 << 20 : nonsense_.Below(2000));
      break;
    }
    default: {
      v1::BlockTable* const table = buffer.mutable_blocks();
      table->set_arena_id(arena);
      table->set_block_bytes(nonsense_.Below(8));
      for (uint64_t i = nonsense_.Below(2000); i > 0; --i)
        table->add_indices(nonsense_.Below(4096));
    }
  }
}

void BadClient::SaySense() {
  v1::AttachRequest request;
  const bool send = nonsense_.Chance(50);
  const uint64_t count = nonsense_.Chance(10) ? nonsense_.Below(600) : 1 + nonsense_.Below(3);
  const auto fill = [&](auto& batch, auto add_remote) {
    batch.set_device_id(device_);
    batch.set_domain(nonsense_.Chance(50) ? "bad" : "");
    for (uint64_t i = 0; i < count; ++i) {
      batch.add_transfer_keys(absl::StrCat("k", nonsense_.Below(16), i));
      add_remote(nonsense_.Chance(50) ? device_ : remote_);
      FillBuffer(*batch.add_buffers());
    }
    batch.mutable_options()->mutable_deadline()->set_nanos(
        static_cast<int32_t>(1 + nonsense_.Below(500'000'000)));
  };
  if (send) {
    v1::CrossHostSendRequest& batch = *request.mutable_send();
    fill(batch, [&](uint64_t remote) { batch.add_dst_global_device_ids(remote); });
  } else {
    v1::CrossHostReceiveRequest& batch = *request.mutable_receive();
    fill(batch, [&](uint64_t remote) { batch.add_src_global_device_ids(remote); });
  }
  request.set_sequence(++sequence_);
  if (!session_->socket().Send(request.SerializeAsString())) session_.reset();
}

void BadClient::SayNonsense() {
  v1::AttachRequest request;
  nonsense_.Fill(request);
  std::string bytes = request.SerializeAsString();
  if (nonsense_.Chance(4)) bytes = nonsense_.Broken(std::move(bytes));
  if (bytes.size() > 100'000) return;
  std::vector<UniqueFd> fds;
  std::vector<int> numbers;
  for (uint64_t i = nonsense_.Chance(30) ? nonsense_.Below(4) : 0; i > 0; --i) {
    if (UniqueFd fd = nonsense_.Descriptor(); fd.valid()) {
      numbers.push_back(fd.get());
      fds.push_back(std::move(fd));
    }
  }
  if (!session_->socket().Send(bytes, numbers)) session_.reset();
}

void BadClient::CallNonsense() {
  const auto call = [&]<typename Request, typename Response>(Request request, Response response,
                                                             auto method) {
    nonsense_.Fill(request);
    (void)session_->Call([&](auto* context) {
      context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
      return method(context, request, &response);
    });
  };
  v1::TransferService::Stub& transfers = session_->transfers();
  switch (nonsense_.Below(4)) {
    case 0:
      return call(v1::CrossHostSendRequest(), v1::CrossHostSendResponse(),
                  [&](auto* context, auto& request, auto* response) {
                    request.set_prepare(false);
                    return transfers.CrossHostSend(context, request, response);
                  });
    case 1:
      return call(v1::CrossHostReceiveRequest(), v1::CrossHostReceiveResponse(),
                  [&](auto* context, auto& request, auto* response) {
                    return transfers.CrossHostReceive(context, request, response);
                  });
    case 2:
      return call(v1::CancelTransfersRequest(), v1::CancelTransfersResponse(),
                  [&](auto* context, auto& request, auto* response) {
                    return transfers.CancelTransfers(context, request, response);
                  });
    default:
      return call(v1::GetTransfersRequest(), v1::GetTransfersResponse(),
                  [&](auto* context, auto& request, auto* response) {
                    return transfers.GetTransfers(context, request, response);
                  });
  }
}

}  // namespace ferry::testing
