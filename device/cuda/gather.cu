// SPDX-License-Identifier: Apache-2.0
// Moves many small pieces in one launch; see cuda_gather.h. A block moves one task at a time, with
// the widest accesses that both addresses allow.
#include <cstdint>

struct Task {  // as GatherTask in cuda_gather.h
  uint64_t to, from, bytes;
};
struct Table {  // as GatherTable in cuda_gather.h
  const Task* tasks;
  uint64_t end;
  uint64_t to_shift, from_shift;
};
struct Tables {  // as GatherTables in cuda_gather.h
  Table tables[16];
};

template <typename Word>
__device__ void MoveWords(char* to, const char* from, uint64_t bytes) {
  Word* const out = reinterpret_cast<Word*>(to);
  const Word* const in = reinterpret_cast<const Word*>(from);
  const uint64_t words = bytes / sizeof(Word);
  const uint64_t step = blockDim.x;
  uint64_t i = threadIdx.x;
  // Four loads in flight a thread: a store to a peer waits for none of them.
  for (; i + 3 * step < words; i += 4 * step) {
    const Word a = in[i], b = in[i + step], c = in[i + 2 * step], d = in[i + 3 * step];
    out[i] = a;
    out[i + step] = b;
    out[i + 2 * step] = c;
    out[i + 3 * step] = d;
  }
  for (; i < words; i += step) out[i] = in[i];
}

// The part that is aligned for Word at both ends, and around it bytes.
template <typename Word>
__device__ void Move(char* to, const char* from, uint64_t bytes) {
  const uint64_t off = reinterpret_cast<uint64_t>(to) % sizeof(Word);
  const uint64_t head = min(bytes, off == 0 ? uint64_t{0} : sizeof(Word) - off);
  const uint64_t body = (bytes - head) / sizeof(Word) * sizeof(Word);
  if (head > 0) MoveWords<char>(to, from, head);
  MoveWords<Word>(to + head, from + head, body);
  if (head + body < bytes) {
    MoveWords<char>(to + head + body, from + head + body, bytes - head - body);
  }
}

// Tasks are counted over all tables; `count` of them.
extern "C" __global__ void __launch_bounds__(256)
    ferry_gather(const __grid_constant__ Tables tables, uint32_t count) {
  uint32_t t = 0;
  uint64_t begin = 0;  // of table t
  for (uint32_t i = blockIdx.x; i < count; i += gridDim.x) {
    while (i >= tables.tables[t].end) begin = tables.tables[t++].end;
    const Table& table = tables.tables[t];
    Task task = table.tasks[i - begin];
    task.to += table.to_shift;
    task.from += table.from_shift;
    char* const to = reinterpret_cast<char*>(task.to);
    const char* const from = reinterpret_cast<const char*>(task.from);
    const uint64_t apart = task.to ^ task.from;
    if (apart % 16 == 0) {
      Move<uint4>(to, from, task.bytes);
    } else if (apart % 4 == 0) {
      Move<uint32_t>(to, from, task.bytes);
    } else {
      MoveWords<char>(to, from, task.bytes);
    }
  }
}
