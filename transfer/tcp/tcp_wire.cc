// SPDX-License-Identifier: Apache-2.0
#include "transfer/tcp/tcp_wire.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {
namespace {

template <typename Number>
void Append(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

template <typename Number>
Number Cut(absl::string_view& bytes) {
  Number number;
  memcpy(&number, bytes.data(), sizeof(number));
  bytes.remove_prefix(sizeof(number));
  return number;
}

// A proof says which end makes it, so that neither can be sent back.
std::string Proof(absl::string_view role, absl::string_view said, absl::string_view secret) {
  return HmacSha256(secret, absl::StrCat("ferry tcp ", role, ":", said));
}

absl::string_view Said(absl::string_view preamble) {
  return preamble.substr(0, kTcpPreambleBytes - kHmacBytes);
}

}  // namespace

std::string TcpLinkId(absl::string_view secret) {
  return HmacSha256(secret, "ferry tcp link").substr(0, kTcpLinkIdBytes);
}

std::string EncodeTcpPreamble(const TcpPreamble& preamble, absl::string_view secret) {
  std::string bytes(kTcpMagic);
  bytes += preamble.link_id;
  Append(bytes, preamble.from.value());
  Append(bytes, preamble.to.value());
  Append(bytes, preamble.serial);
  Append(bytes, preamble.index);
  Append(bytes, preamble.count);
  return bytes + Proof("dials", bytes, secret);
}

absl::StatusOr<TcpPreamble> DecodeTcpPreamble(absl::string_view bytes) {
  if (bytes.size() != kTcpPreambleBytes || bytes.substr(0, kTcpMagic.size()) != kTcpMagic) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kProtocolError,
                 "data connection: it does not begin with a preamble");
  }
  bytes.remove_prefix(kTcpMagic.size());
  TcpPreamble preamble;
  preamble.link_id = std::string(bytes.substr(0, kTcpLinkIdBytes));
  bytes.remove_prefix(kTcpLinkIdBytes);
  preamble.from = GlobalDeviceId(Cut<uint64_t>(bytes));
  preamble.to = GlobalDeviceId(Cut<uint64_t>(bytes));
  preamble.serial = Cut<uint64_t>(bytes);
  preamble.index = Cut<uint32_t>(bytes);
  preamble.count = Cut<uint32_t>(bytes);
  if (preamble.count < 2 || preamble.count > kTcpMostConnections ||
      preamble.index >= preamble.count) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kProtocolError,
                 absl::StrCat("data connection: it is number ", preamble.index, " of ",
                              preamble.count, ", of 2 to ", kTcpMostConnections));
  }
  return preamble;
}

bool ProvesTcp(absl::string_view bytes, absl::string_view secret) {
  return bytes.size() == kTcpPreambleBytes &&
         SameBytes(bytes.substr(kTcpPreambleBytes - kHmacBytes),
                   Proof("dials", Said(bytes), secret));
}

std::string TcpAnswer(absl::string_view preamble_bytes, absl::string_view secret) {
  return Proof("answers", Said(preamble_bytes), secret);
}

}  // namespace ferry
