// SPDX-License-Identifier: Apache-2.0
// TcpIncoming has what was read from one connection and not looked at yet, and the message that is
// being read, entry by entry. It refuses what is no message (tcp_wire.h), and knows no ops: where
// the bytes of an entry go, and whether they may, says TcpReceives.
//
// Pure. Home: the lane. Owner: the connection. Owns the chunks of the present message until they
// are taken out of its parts.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/home.h"
#include "transfer/tcp/tcp_op.h"
#include "transfer/tcp/tcp_wire.h"

namespace ferry {

class TcpIncoming {
 public:
  // One entry of the message, and where its bytes go.
  struct Part {
    TcpEntry entry;
    bool known = false;               // the tag was looked up
    bool dropped = false;             // nobody wants the bytes
    std::unique_ptr<TcpChunk> chunk;  // set if the bytes go to a GPU
  };

  // --- Bytes that were read ahead.

  absl::Span<const std::byte> ahead() const { return {ahead_.data() + begin_, end_ - begin_}; }
  // The first bytes of ahead() were looked at.
  void Skip(size_t bytes);
  // Where what comes behind the present message, or next if there is none, is read to. Invalidates
  // ahead().
  iovec Behind();
  // `bytes` bytes were read to Behind().
  void ReadBehind(size_t bytes);

  // --- The present message.

  bool in_message() const { return next_ < parts_.size(); }
  // If no message is present: takes the head of the next one, and false if it has not come whole.
  // What no message begins with is refused: `wrong` says why, and nothing more can be read.
  bool Begin(absl::string_view& wrong);
  TcpKind kind() const { return kind_; }
  // Parts that have not come whole. The first one is the one that is being read.
  absl::Span<Part> left() {
    home_.Check();
    return absl::MakeSpan(parts_).subspan(next_);
  }
  uint64_t done() const { return done_; }  // bytes of that part that have come
  // `bytes` more bytes of the parts have come, of which those of the part that is being read are
  // taken off. Returns the part if it has come whole, else null. It stays until EndIfOver().
  Part* Come(size_t& bytes);
  // The part that is being read, of a message without bytes, was heard.
  void Heard();
  // The message is over if all its parts are: forgets them.
  void EndIfOver();
  // The op has ended: no chunk is of it any more.
  void LetGo(const TcpOp& op);
  // The chunks of the message, to give it up.
  std::vector<std::unique_ptr<TcpChunk>> TakeChunks();

 private:
  // Bytes that were read and not looked at are [begin_, end_).
  std::array<std::byte, 16 << 10> ahead_;
  size_t begin_ = 0;
  size_t end_ = 0;
  TcpKind kind_ = TcpKind::kBytes;
  std::vector<Part> parts_;  // by entry of the present message
  size_t next_ = 0;          // index of the part that is being read
  uint64_t done_ = 0;        // bytes of that part that have come
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
