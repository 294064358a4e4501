// SPDX-License-Identifier: Apache-2.0
// TcpOutgoing makes the messages of one connection, one after the other, and knows how much of the
// present one is written. It decides how many entries and bytes a message has (tcp_wire.h), and
// writes nothing itself.
//
// The pieces of a message are memory of its ops, so an op that gets its memory back must be let go
// of: the message then has copies of its bytes that are not written.
//
// Pure. Home: the lane. Owner: the connection. Owns the chunks of the present message until they
// are taken.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/home.h"
#include "transfer/fair_queue.h"
#include "transfer/tcp/tcp_op.h"
#include "transfer/tcp/tcp_wire.h"

namespace ferry {

class TcpOutgoing {
 public:
  // The bytes of one op in the message.
  struct OpBytes {
    TcpOp* op = nullptr;  // null: the op has ended
    uint64_t bytes = 0;
    size_t first_piece = 0;
    size_t end_piece = 0;
    std::unique_ptr<TcpChunk> chunk;  // set if the bytes are a GPU's
  };

  // True if no message is to be written.
  bool idle() const { return next_piece_ == pieces_.size(); }

  // --- The next message, once idle(). False if there is nothing for one.

  // The oldest of what is to be said, with what is of its kind behind it.
  bool TakeSaid(std::deque<std::pair<TcpKind, TcpEntry>>& said);
  // Bytes of the sends whose turn it is. `queue` has TcpTurns only.
  bool TakeSends(FairQueue& queue);
  // Chunks, the oldest first.
  bool TakeChunks(std::deque<std::unique_ptr<TcpChunk>>& ready);

  // --- The present message.

  // What is not written yet, in its order. Invalid after any other call.
  absl::Span<iovec> unwritten();
  // The first `bytes` bytes of unwritten() are written.
  void Wrote(size_t bytes);
  // The bytes of ops, once idle(), or to give the message up.
  std::vector<OpBytes> TakeOpBytes();
  // Gives an op that ends, or whose firing ends, its memory back.
  void LetGo(const TcpOp& op);

 private:
  void Begin();
  // Puts the head before what was taken; false if nothing was.
  bool Finish(TcpKind kind);

  std::vector<TcpEntry> entries_;
  std::string head_;
  std::vector<iovec> pieces_;  // the first one is the head's
  // First piece that is not wholly written; it begins where the writing goes on.
  size_t next_piece_ = 0;
  std::vector<OpBytes> op_bytes_;
  // Copies of bytes whose ops have got their memory back.
  std::vector<std::unique_ptr<std::byte[]>> kept_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
