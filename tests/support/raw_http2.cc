// SPDX-License-Identifier: Apache-2.0
#include "tests/support/raw_http2.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

namespace ferry::testing {
namespace {

constexpr uint8_t kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kGoAway = 7,
                  kWindowUpdate = 8;
constexpr uint8_t kAck = 1, kEndHeaders = 4;
constexpr size_t kMostInFrame = 16'384;
constexpr uint16_t kInitialWindow = 4;

std::string Number(uint32_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(value >> (8 * i)));
  return out;
}
uint32_t NumberAt(const std::string& text, size_t at, int bytes) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | static_cast<unsigned char>(text[at + i]);
  return value;
}

// HPACK: a literal without indexing, with a new name.
std::string Header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + Number(static_cast<uint32_t>(name.size()), 1) + name +
         Number(static_cast<uint32_t>(value.size()), 1) + value;
}

}  // namespace

RawHttp2::RawHttp2(UniqueFd socket) : socket_(std::move(socket)) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  closed_ = send(socket_.get(), preface.data(), preface.size(), MSG_NOSIGNAL) < 0;
  SendFrame(kSettings, 0, 0, "");
}

void RawHttp2::SendFrame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
  std::string frame = Number(static_cast<uint32_t>(payload.size()), 3) + Number(type, 1) +
                      Number(flags, 1) + Number(stream, 4) + payload;
  for (size_t sent = 0; sent < frame.size() && !closed_;) {
    const ssize_t size =
        send(socket_.get(), frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    closed_ = size < 0;
    sent += closed_ ? 0 : static_cast<size_t>(size);
  }
}

uint32_t RawHttp2::Begin(const std::string& path) {
  const uint32_t stream = next_;
  next_ += 2;
  SendFrame(kHeaders, kEndHeaders, stream,
            Header(":method", "POST") + Header(":scheme", "http") + Header(":path", path) +
                Header(":authority", "localhost") + Header("te", "trailers") +
                Header("content-type", "application/grpc"));
  calls_[stream].window = first_window_;
  return stream;
}

void RawHttp2::ReadFrames() {
  char buffer[65'536];
  pollfd ready{socket_.get(), POLLIN, 0};
  while (!closed_ && poll(&ready, 1, 0) == 1) {
    const ssize_t size = recv(socket_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (size <= 0) {
      closed_ = true;
      break;
    }
    received_.append(buffer, static_cast<size_t>(size));
  }
  constexpr size_t kHead = 9;
  while (received_.size() >= kHead) {
    const size_t size = NumberAt(received_, 0, 3);
    if (received_.size() < kHead + size) return;
    const uint8_t type = static_cast<uint8_t>(received_[3]);
    const bool ack = (received_[4] & kAck) != 0;
    const uint32_t stream = NumberAt(received_, 5, 4);
    const std::string payload = received_.substr(kHead, size);
    received_.erase(0, kHead + size);
    if (type == kSettings && !ack) {
      for (size_t at = 0; at + 6 <= payload.size(); at += 6) {
        if (NumberAt(payload, at, 2) != kInitialWindow) continue;
        const int64_t change = int64_t{NumberAt(payload, at + 2, 4)} - first_window_;
        first_window_ += change;
        for (auto& [number, call] : calls_) call.window += change;
      }
      SendFrame(kSettings, kAck, 0, "");
    } else if (type == kPing && !ack) {
      SendFrame(kPing, kAck, 0, payload);
    } else if (type == kWindowUpdate) {
      (stream == 0 ? window_ : calls_[stream].window) += NumberAt(payload, 0, 4);
    } else if (type == kReset || (type == kHeaders && calls_.contains(stream))) {
      calls_[stream].over = true;  // refused, or answered
    } else if (type == kGoAway) {
      closed_ = true;
    }
  }
}

uint64_t RawHttp2::SendUnfinished(uint32_t bytes) {
  ReadFrames();
  uint64_t all = 0;
  for (auto& [stream, call] : calls_) {
    while (!closed_ && !call.over) {
      const uint64_t end = uint64_t{5} + bytes - 1;
      const int64_t some = std::min<int64_t>(
          {kMostInFrame, window_, call.window, static_cast<int64_t>(end - call.sent)});
      if (some <= 0) break;
      std::string part(static_cast<size_t>(some), 'x');
      if (call.sent == 0) {
        if (some < 5) break;
        part.replace(0, 5, std::string(1, '\0') + Number(bytes, 4));
      }
      SendFrame(kData, 0, stream, part);
      call.sent += part.size();
      call.window -= some;
      window_ -= some;
      all += part.size();
      ReadFrames();
    }
  }
  return all;
}

}  // namespace ferry::testing
