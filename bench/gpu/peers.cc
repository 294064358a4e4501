// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/peers.h"

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/gpu/python_program.h"
#include "bench/network_peers.h"
#include "tools/ferryctl/format.h"

namespace ferry::bench {
namespace {

// A transfer that is prepared once and posted again and again, from process to process; medians in
// seconds.
constexpr char kNixl[] = R"py(
import multiprocessing, random, statistics, sys, time
import torch
try:
    from nixl_cu13 import nixl_agent, nixl_agent_config
except ImportError:
    from nixl import nixl_agent, nixl_agent_config
def memory_of(name, gpu, size):
    torch.cuda.set_device(gpu)
    agent = nixl_agent(name, nixl_agent_config(backends=['UCX']))
    memory = torch.randint(0, 256, (size,), dtype=torch.uint8, device='cuda')
    agent.register_memory(memory)
    return agent, memory
def target(pipe, size):
    agent, memory = memory_of('target', 1, size)
    pipe.send((agent.get_agent_metadata(), memory.data_ptr()))
    pipe.recv()
    pipe.send(int(memory.sum(dtype=torch.int64)))
large = int(sys.argv[1])
ours, theirs = multiprocessing.Pipe()
multiprocessing.get_context('fork').Process(target=target, args=(theirs, large), daemon=True).start()
agent, memory = memory_of('initiator', 0, large)
metadata, address = ours.recv()
remote = agent.add_remote_agent(metadata)
for label, count, size in (('many', 1000, 65536), ('tiny', 10000, 4096), ('large', 1, large)):
    offsets = [i * size for i in range(count)]
    random.Random(1).shuffle(offsets)
    def side(base, gpu):
        return agent.get_xfer_descs([(base + at, size, gpu) for at in offsets], 'VRAM')
    transfer = agent.initialize_xfer('WRITE', side(memory.data_ptr(), 0), side(address, 1), remote)
    took = []
    for _ in range(8):
        begin = time.monotonic_ns()
        state = agent.transfer(transfer)
        while state == 'PROC':
            state = agent.check_xfer_state(transfer)
        took.append((time.monotonic_ns() - begin) / 1e9)
        assert state == 'DONE', state
    print(label, statistics.median(took[2:]))
ours.send('sum')
assert ours.recv() == int(memory.sum(dtype=torch.int64)), 'NIXL delivered other bytes'
)py";

// What a program writes who has both GPUs to itself.
constexpr char kTorch[] = R"py(
import statistics, sys, time
import torch
large = int(sys.argv[1])
a = torch.randint(0, 256, (large,), dtype=torch.uint8, device='cuda:0')
b = torch.zeros(large, dtype=torch.uint8, device='cuda:1')
pieces = [(b[i * 65536:(i + 1) * 65536], a[i * 65536:(i + 1) * 65536]) for i in range(0, 2000, 2)]
def timed(act):
    took = []
    for _ in range(8):
        for gpu in range(2):
            torch.cuda.synchronize(gpu)
        begin = time.monotonic_ns()
        act()
        for gpu in range(2):
            torch.cuda.synchronize(gpu)
        took.append((time.monotonic_ns() - begin) / 1e9)
    return statistics.median(took[2:])
print('many', timed(lambda: [to.copy_(source, non_blocking=True) for to, source in pieces]))
print('large', timed(lambda: b.copy_(a, non_blocking=True)))
assert torch.equal(a, b.to('cuda:0'))
)py";

// What PyTorch's users write between two processes: a first buffer, then 1,000 of them, by NCCL.
constexpr char kTorchExchange[] = R"py(
import multiprocessing, os, statistics, time
import torch, torch.distributed as dist
def run(rank, port):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    pieces = torch.randint(0, 256, (1000, 65536), dtype=torch.uint8, device='cuda')
    torch.cuda.synchronize()
    begin = time.monotonic_ns()
    dist.init_process_group('nccl', rank=rank, world_size=2, device_id=torch.device('cuda', rank))
    (dist.send if rank == 0 else dist.recv)(pieces[:16], 1 - rank)
    torch.cuda.synchronize()
    if rank == 1:
        print('first', (time.monotonic_ns() - begin) / 1e9, flush=True)
    act = dist.isend if rank == 0 else dist.irecv
    took = []
    for _ in range(8):
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.monotonic_ns()
        for work in dist.batch_isend_irecv([dist.P2POp(act, piece, 1 - rank) for piece in pieces]):
            work.wait()
        torch.cuda.synchronize()
        took.append((time.monotonic_ns() - begin) / 1e9)
    if rank == 1:
        print('exchange', statistics.median(took[2:]), flush=True)
    dist.barrier()
    dist.destroy_process_group()
import socket
with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
other = multiprocessing.get_context('fork').Process(target=run, args=(1, port), daemon=True)
other.start()
run(0, port)
other.join()
)py";

// What JAX's users write between two processes: 1,000 arrays in one call, which is its best.
constexpr char kJax[] = R"py(
import importlib.util, multiprocessing, os, socket, statistics, sys, time
if importlib.util.find_spec('jax') is None:
    sys.exit('there is no jax')
os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'
def run(rank, port, barrier):
    import jax, numpy
    jax.distributed.initialize(f'127.0.0.1:{port}', 2, rank, local_device_ids=[rank])
    ends = [jax.sharding.SingleDeviceSharding(jax.local_devices(process_index=i)[0]) for i in range(2)]
    def source(i):
        own = [jax.device_put(numpy.full(65536, i % 251, numpy.uint8), ends[0])] if rank == 0 else []
        return jax.make_array_from_single_device_arrays((65536,), ends[0], own, dtype=numpy.uint8)
    pieces = [source(i) for i in range(1000)]
    if rank == 0:
        jax.block_until_ready(pieces)
    took = []
    for _ in range(8):
        barrier.wait(60)
        begin = time.monotonic_ns()
        moved = jax.device_put(pieces, ends[1])
        if rank == 1:
            jax.block_until_ready(moved)
        took.append((time.monotonic_ns() - begin) / 1e9)
        barrier.wait(60)
    if rank == 1:
        for i in (0, 7, 999):
            assert int(moved[i].addressable_shards[0].data[i]) == i % 251, 'JAX delivered other bytes'
        print('exchange', statistics.median(took[2:]), flush=True)
    barrier.wait(60)
with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
context = multiprocessing.get_context('fork')
barrier = context.Barrier(2)
ranks = [context.Process(target=run, args=(rank, port, barrier), daemon=True) for rank in range(2)]
for rank in ranks:
    rank.start()
for rank in ranks:
    rank.join()
    if rank.exitcode != 0:
        sys.exit('a process of JAX failed')
)py";

// Labels and seconds. Each program takes `large`, a size in bytes.
std::map<std::string, double> Run(const char* name, const char* program, uint64_t large) {
  return RunPython(name, program, 60, {absl::StrCat(large)});
}

std::optional<double> Find(const std::map<std::string, double>& seconds, const char* label,
                           double per_second) {
  const auto found = seconds.find(label);
  if (found == seconds.end() || found->second <= 0) return std::nullopt;
  return per_second > 0 ? per_second / found->second / 1e9 : found->second * 1e3;
}

}  // namespace

// Its two ends take different GPUs by themselves.
std::optional<double> UcxBetweenGpus(uint64_t bytes, int iterations) {
  const auto rate = MeasureUcxPerftest("cuda_ipc,cuda_copy,posix,cma,tcp,self", bytes, iterations,
                                       {"-m", "cuda,cuda"});
  if (rate.ok()) return *rate;
  std::fprintf(stderr, "not measured: ucx_perftest: %s\n",
               std::string(rate.status().message()).c_str());
  return std::nullopt;
}

GpuPeers MeasureGpuPeers(uint64_t large, bool copies, bool nccl) {
  GpuPeers peers;
  if (nccl) {
    const auto torch = Run("PyTorch, two processes", kTorchExchange, large);
    peers.torch_exchange_many = Find(torch, "exchange", 0);
    peers.torch_first = Find(torch, "first", 0);
    peers.jax_many = Find(Run("JAX, two processes", kJax, large), "exchange", 0);
  }
  if (!copies) return peers;
  const auto bytes = static_cast<double>(large);
  peers.ucx_large = UcxBetweenGpus(large, 20);
  if (peers.ucx_large) {
    if (const auto rate = UcxBetweenGpus(64 << 10, 20'000)) {
      peers.ucx_many = 1000.0 * (64 << 10) / (*rate * 1e9) * 1e3;
    }
  }
  const auto nixl = Run("NIXL", kNixl, large);
  peers.nixl_large = Find(nixl, "large", bytes);
  peers.nixl_many = Find(nixl, "many", 0);
  peers.nixl_tiny = Find(nixl, "tiny", 0);
  const auto torch = Run("PyTorch", kTorch, large);
  peers.torch_large = Find(torch, "large", bytes);
  peers.torch_many = Find(torch, "many", 0);
  return peers;
}

}  // namespace ferry::bench
