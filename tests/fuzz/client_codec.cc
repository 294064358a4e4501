// SPDX-License-Identifier: Apache-2.0
// libferry's own decoders, fed with one answer as if it were each of them. Where protoc's code
// takes the bytes too, both have read the same numbers.
#include <google/protobuf/stubs/logging.h>

#include "base/check.h"
#include "client/codec.h"
#include "ferry/v1/session.pb.h"
#include "ferry/v1/transfer.pb.h"

namespace ferry::client {
namespace {

// It complains about each text that is no text.
const auto kQuiet = google::protobuf::SetLogHandler(nullptr);

// Not all that ours takes: protoc's looks at the encoding of texts too.
template <typename Message>
bool Parse(std::string_view bytes, Message& message) {
  return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

void Decode(std::string_view bytes) {
  AttachResponse attach;
  v1::AttachResponse attach_message;
  if (DecodeAttachResponse(bytes, &attach) && Parse(bytes, attach_message)) {
    FERRY_CHECK(attach.sequence == attach_message.sequence());
    FERRY_CHECK((attach.kind == AttachResponse::Kind::kNone) ==
                (attach_message.response_case() == v1::AttachResponse::RESPONSE_NOT_SET));
  }
  PostAnswer answer;
  v1::CrossHostSendResponse answer_message;
  if (DecodePostAnswer(bytes, &answer) && Parse(bytes, answer_message)) {
    FERRY_CHECK(answer.first_transfer_id == answer_message.first_transfer_id());
    FERRY_CHECK(answer.first_over_value == answer_message.first_over_value());
  }
  std::vector<TransferInfo> transfers;
  v1::GetTransfersResponse get;
  if (DecodeGetTransfers(bytes, &transfers) && Parse(bytes, get)) {
    FERRY_CHECK(transfers.size() == static_cast<size_t>(get.transfers_size()));
    for (int i = 0; i < get.transfers_size(); ++i) {
      FERRY_CHECK(transfers[static_cast<size_t>(i)].id == get.transfers(i).transfer_id());
    }
  }
  WatchEvents events;
  v1::WatchTransfersResponse watch;
  if (DecodeWatch(bytes, &events) && Parse(bytes, watch)) {
    FERRY_CHECK(events.first_event == watch.first_event());
    FERRY_CHECK(events.ended.size() == static_cast<size_t>(watch.ended_size()));
  }
  std::vector<ClusterDeviceInfo> devices;
  v1::ListClusterDevicesResponse list;
  if (DecodeClusterDevices(bytes, &devices) && Parse(bytes, list)) {
    FERRY_CHECK(devices.size() == static_cast<size_t>(list.devices_size()));
  }
  const StatusPtr status = DecodeStatus(bytes);
  FERRY_CHECK(status == nullptr || status->code != 0);
}

}  // namespace
}  // namespace ferry::client

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ferry::client::Decode({reinterpret_cast<const char*>(data), size});
  return 0;
}
