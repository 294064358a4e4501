// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tcp_packet.h"

#include <netinet/in.h>

namespace ferry::testing {
namespace {

constexpr size_t kIpv6Header = 40;
constexpr size_t kTcpHeader = 20;
constexpr uint8_t kSyn = 0x02, kRst = 0x04, kAck = 0x10;
constexpr size_t kDataOffset = 12, kFlags = 13, kWindow = 14, kChecksum = 16;  // in TCP's header

uint8_t ByteAt(absl::string_view bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

uint16_t WordAt(absl::string_view bytes, size_t at) {
  return static_cast<uint16_t>(ByteAt(bytes, at) << 8 | ByteAt(bytes, at + 1));
}

void PutWord(std::string& bytes, size_t at, uint16_t word) {
  bytes[at] = static_cast<char>(word >> 8);
  bytes[at + 1] = static_cast<char>(word);
}

bool IsIpv4(absl::string_view ip) { return ByteAt(ip, 0) >> 4 == 4; }

// Where TCP begins; 0 if it does not.
size_t TcpAt(absl::string_view ip) {
  if (ip.size() < kTcpHeader) return 0;
  const bool v4 = IsIpv4(ip);
  const size_t at = v4 ? (ByteAt(ip, 0) & 0xf) * 4u : kIpv6Header;
  if (ip.size() < at + kTcpHeader) return 0;
  return ByteAt(ip, v4 ? 9 : 6) == IPPROTO_TCP ? at : 0;
}

// The sum of the internet's checksums, not folded. An even number of bytes.
uint32_t Sum(absl::string_view bytes) {
  uint32_t sum = 0;
  for (size_t i = 0; i < bytes.size(); i += 2) sum += WordAt(bytes, i);
  return sum;
}

uint16_t Checksum(uint32_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

}  // namespace

std::optional<TcpPacket> TcpPacket::Of(absl::string_view ip) {
  const size_t at = TcpAt(ip);
  if (at == 0) return std::nullopt;
  const size_t payload = at + (ByteAt(ip, at + kDataOffset) >> 4) * 4u;
  if (payload > ip.size()) return std::nullopt;
  return TcpPacket{WordAt(ip, at), WordAt(ip, at + 2),
                   (ByteAt(ip, at + kFlags) & (kSyn | kAck)) == kSyn, ip.substr(payload)};
}

std::string ResetInsteadOf(absl::string_view ip) {
  const size_t at = TcpAt(ip);
  std::string reset(ip.substr(0, at + kTcpHeader));
  reset[at + kDataOffset] = static_cast<char>(kTcpHeader / 4 << 4);
  reset[at + kFlags] = static_cast<char>(kRst | kAck);
  PutWord(reset, at + kWindow, 0);
  PutWord(reset, at + kChecksum, 0);
  const bool v4 = IsIpv4(ip);
  const absl::string_view addresses =
      v4 ? ip.substr(12, 8) : ip.substr(8, 32);  // of both ends, as the checksum covers them
  PutWord(reset, at + kChecksum,
          Checksum(Sum(addresses) + IPPROTO_TCP + kTcpHeader +
                   Sum(absl::string_view(reset).substr(at))));
  if (v4) {
    PutWord(reset, 2, static_cast<uint16_t>(reset.size()));
    PutWord(reset, 10, 0);
    PutWord(reset, 10, Checksum(Sum(absl::string_view(reset).substr(0, at))));
  } else {
    PutWord(reset, 4, kTcpHeader);
  }
  return reset;
}

}  // namespace ferry::testing
