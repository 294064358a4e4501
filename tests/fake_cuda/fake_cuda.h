// SPDX-License-Identifier: Apache-2.0
// Controls the fake libcuda (libferry_fake_cuda.so): link the library, or look these functions up
// in the opened library. Any thread. All settings can also be given from outside, in
// FERRY_FAKE_CUDA when the library is first used, as "devices=2;copy_us=100":
//
//   devices=N        GPUs of the machine (default 2, at most 16); CUDA_VISIBLE_DEVICES=1,0 chooses
//   seed=N           part of all UUIDs: tests that run side by side use different ones
//   memory_mib=N     memory of each GPU (default 1024), which one process may allocate
//   version=N        of the driver (default 13000)
//   capability=N     compute capability of each GPU (default 90, which is 9.0)
//   no_peer=1        no GPU reaches another one's memory
//   ipc_at_home=1    memory of an IPC handle can be touched only by the GPU in whose context it is
//                    open; else copies by other GPUs work, as the real driver's slow way through
//                    the host does
//   no_vmm=1         no virtual memory management, so nothing can be shared by descriptor
//   no_rdma=1        adapters do not reach a GPU's memory, and memory for RDMA is refused
//   no_flush=1       streams that wait cannot flush what adapters have written
//   no_stores=1      streams do not store words
//   nvlinks=N        NVLinks from each GPU to each other GPU (default 18); 0: there are none
//   nvlinks_down=N   how many of these are down (default 0)
//   nvswitch=1       NVLinks lead to switches, by which each GPU reaches all others
//   virtual_gpus=1   NVML and the driver do not say where GPUs are and what joins them
//   exclusive=1      exclusive-process mode: the second process with a context is refused
//   prohibited=1     prohibited mode: every process with a context is refused
//   copy_us=N        microseconds that each copy of a stream takes at least
//   kernel_us=N      microseconds that each kernel waits before it starts, as beside another
//                    process's kernels
//   gate=PATH        while the file exists, copies of streams wait
//   open_gate=PATH   while the file exists, openings of IPC handles wait
//   fail_copy=N      the Nth copy or launch from now is refused by the call
//                    (LAUNCH_OUT_OF_RESOURCES)
//   fail_import=N    the Nth import of a descriptor from now is refused (OUT_OF_MEMORY)
//   unknown_handle=N the Nth import of a descriptor, or opening of an IPC handle, from now answers
//                    UNKNOWN, and nothing is lost
//   fail_map=N       the Nth mapping of a descriptor from now is refused
//   fail_context=N   the Nth opening of a context from now is refused
//   sticky=N         the Nth copy or launch from now fails as hardware does: the process's GPUs are
//                    lost, and every later call answers ECC_UNCORRECTABLE; 0 takes that back
//   bad_kernels=PATH while the file exists, kernels of programs touch what they must not
//                    (ILLEGAL_ADDRESS), by which the process's GPUs are lost
//
// GPUs 0 and 1 of the machine are at NUMA node 0, GPUs 2 and 3 at node 1, and so on.
//
// CUDA_DEVICE_MAX_CONNECTIONS (1 to 32, default 8) is, as with the real driver, the number of
// streams that may wait for a word before all other streams of the process stand still.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Changes the settings named in `settings`; the others stay.
void fake_cuda_configure(const char* settings);
// While `hold` is not 0, copies of streams wait.
void fake_cuda_hold_copies(int hold);

// Counts since the process began, or of now where it says so.
struct fake_cuda_counts {
  uint64_t contexts;         // now
  uint64_t streams;          // now
  uint64_t parked;           // streams that wait for a word, now
  uint64_t flushing_waits;   // queued waits that flush what adapters have written
  uint64_t copies;           // started by a call; each entry of a batch counts
  uint64_t batches;          // calls of cuMemcpyBatchAsync
  uint64_t launches;         // launches of kernels
  uint64_t early_launches;   // those of them that may begin before the kernel ahead of them is over
  uint64_t shared_bytes;     // dynamic shared memory of a block, summed over all launches
  uint64_t attributes;       // calls that set an attribute of a kernel
  uint64_t waits;            // calls that waited for a stream, a context or an event
  uint64_t pageable_copies;  // copies with host memory that is not registered, so the caller waited
  uint64_t bytes_copied;     // bytes that have arrived
  uint64_t reservations;     // reservations of address space, now
  uint64_t registrations;    // registrations of host memory, now
  uint64_t rdma_handles;     // handles of memory that was allocated for RDMA, now
};
void fake_cuda_get_counts(struct fake_cuda_counts* counts);
// How many streams of this priority there are now.
uint64_t fake_cuda_streams_of(int priority);
// Bytes of device memory that this process has allocated and not freed.
uint64_t fake_cuda_allocated(int device);

#ifdef __cplusplus
}
#endif
