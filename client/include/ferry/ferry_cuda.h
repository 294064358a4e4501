/* SPDX-License-Identifier: Apache-2.0 */
/* libferry beside CUDA: the application's own GPU memory as arenas, timelines on its own streams,
 * and an allocator for frameworks. Needs no header of CUDA. A stream is a CUstream or a
 * cudaStream_t, which are the same; NULL is the default stream of the current context.
 *
 * libcuda is opened at the first use ($FERRY_CUDA_LIBRARY, else libcuda.so.1) and never linked.
 * Where it is missing or does not see the GPU, calls fail with DEVICE_UNKNOWN. Threads, errors and
 * structs: as in ferry.h. */
#ifndef FERRY_FERRY_CUDA_H_
#define FERRY_FERRY_CUDA_H_

#include <sys/types.h>

#include "ferry/ferry.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
typedef struct CUstream_st* ferry_cuda_stream;

/* ---- Memory ---- */

/* The kind of an arena's memory, and how the daemon gets at it. */
enum {
  FERRY_MEMORY_MEMFD = 1,    /* host */
  FERRY_MEMORY_CUDA_VMM = 3, /* a GPU's allocation with a descriptor: it survives either side */
  FERRY_MEMORY_CUDA_IPC = 4  /* the application's cudaMalloc, by IPC handle */
};
FERRY_API int ferry_arena_memory(const ferry_arena* arena);
/* The GPU's ordinal in this process, as cuDeviceGet numbers it; -1: host memory, or not an
 * arena. */
FERRY_API int ferry_arena_cuda_device(const ferry_arena* arena);

/* Makes an arena of `bytes` of the application's own device memory from `pointer`, which must be on
 * `device`. The memory stays the application's, which must not free it before the arena is freed
 * and its last transfer is over.
 *   - Memory of cuMemCreate that was created exportable as a POSIX descriptor is shown by that
 *     (FERRY_MEMORY_CUDA_VMM). `pointer` must be where a mapping begins; at most 250 mappings in a
 *     row.
 *   - Memory of cudaMalloc (cuMemAlloc) is shown by IPC handle (FERRY_MEMORY_CUDA_IPC), which works
 *     within one PID namespace only, and not into the process that made it.
 * Stream-ordered pools and managed memory cannot be shared: FIELD_INVALID. ferry_arena_data is
 * `pointer`. */
FERRY_API ferry_status* ferry_arena_import_cuda(ferry_session* session, uint64_t device,
                                                void* pointer, uint64_t bytes, ferry_arena** arena);
/* Makes an arena of 1 to 250 VMM allocations, given by descriptors (cuMemExportToShareableHandle)
 * that stay the caller's. `segment_bytes` are the allocations' lengths as created. The arena maps
 * them one behind the other. */
FERRY_API ferry_status* ferry_arena_import_cuda_fds(ferry_session* session, uint64_t device,
                                                    const int* fds, const uint64_t* segment_bytes,
                                                    size_t count, ferry_arena** arena);

/* ---- Streams ----
 *
 * Each of these functions queues one operation on a stream and returns. The session, or the
 * prepared batch, must outlive what was queued. On a stream that is being captured they fail with
 * FAILED_PRECONDITION: a graph would repeat one value.
 *
 * A stream that waits occupies one of the process's connections to the GPU
 * (CUDA_DEVICE_MAX_CONNECTIONS, 8 if it is not set). When all are occupied no stream of the
 * process goes on, not even one that would end the wait. So at most (connections - 2) streams wait
 * here at once. A further wait, and every wait if there are only 1 or 2 connections, is carried
 * out by the host: the call returns when the wait is over, and queues nothing. If the wait hangs
 * on something that this process has yet to post, define or fire, the call fails instead with
 * WOULD_DEADLOCK: do that first, or wait later. This is known at once, but for a transfer that
 * waits for its other half: the other half counts as this process's to post if the process has
 * arenas on its device, and if the two have not met within some 50 ms.
 *
 * The default stream of a context (NULL) may wait here like any other, and then stops every stream
 * of the context that was not created as non-blocking (cudaStreamNonBlocking), by CUDA's rules.
 *
 * The session's pages are registered with CUDA in the primary context of the stream's GPU, which
 * the process then keeps.
 *
 * When the daemon is lost, libferry ends every value that was posted, so that streams go on;
 * ferry_batch_wait tells as ever how the transfers ended. A stream that waits for a value that was
 * not posted yet waits for the next daemon's transfers. Once the session is over (it does not
 * re-attach, gave that up, or was closed) such a stream goes on too, and new waits of this kind
 * are refused with how the session ended. */

/* 'defined' counter `timeline` becomes `value` when the stream gets there; whoever sees the value
 * sees the effects of what was queued before. For transfers of a GPU's arenas only: a store from a
 * GPU wakes nobody, and the lanes of host devices do not look for it. Values only grow, in the
 * order of streams too. */
FERRY_API ferry_status* ferry_stream_define(ferry_session* session, ferry_cuda_stream stream,
                                            uint32_t timeline, uint64_t value);
/* The stream goes on when 'over' counter `timeline` has reached `value`; what is queued behind the
 * wait sees the bytes. */
FERRY_API ferry_status* ferry_stream_wait_over(ferry_session* session, ferry_cuda_stream stream,
                                               uint32_t timeline, uint64_t value);
/* The stream goes on when all transfers of the batch are over. */
FERRY_API ferry_status* ferry_stream_wait_batch(ferry_batch* batch, ferry_cuda_stream stream);
/* Fires the batch at this end when the stream gets there; the firing's number goes into `firing`
 * unless that is NULL. The firing before must be over by then: wait for it on a stream or on the
 * host. For batches of a GPU's arenas. */
FERRY_API ferry_status* ferry_stream_fire(ferry_prepared* prepared, ferry_cuda_stream stream,
                                          uint64_t* firing);
/* The stream goes on when firing `firing` is over, or when the batch has ended. */
FERRY_API ferry_status* ferry_stream_wait_prepared(ferry_prepared* prepared,
                                                   ferry_cuda_stream stream, uint64_t firing);

typedef struct ferry_stream_counts {
  size_t struct_size;
  uint32_t connections;    /* connections of the process to a GPU */
  uint32_t parked_most;    /* the most streams that may wait at once */
  uint32_t parked;         /* streams that wait now */
  uint64_t stream_waits;   /* waits that were queued on streams so far */
  uint64_t host_waits;     /* waits that the host carried out so far */
  uint64_t would_deadlock; /* waits that were refused so far */
} ferry_stream_counts;
/* The counts of this process, over all its sessions. */
FERRY_API ferry_stream_counts ferry_stream_get_counts(void);

/* ---- Allocator ----
 *
 * For torch.cuda.memory.CUDAPluggableAllocator("libferry.so", "ferry_cuda_malloc",
 * "ferry_cuda_free"). Each allocation is an arena of one session of the process, which is opened
 * with the default options when first needed. An allocation takes a call to the daemon and a
 * mapping, about a millisecond: use it for buffers that are moved, not for every temporary. */

/* NULL for 0 bytes, and if the allocation failed (ferry_cuda_malloc_status). `device` is an ordinal
 * of this process. The memory may be used on any stream at once. */
FERRY_API void* ferry_cuda_malloc(ssize_t size, int device, ferry_cuda_stream stream);
/* Waits for all that runs on the device first, as cudaFree does. NULL is fine. */
FERRY_API void ferry_cuda_free(void* pointer, ssize_t size, int device, ferry_cuda_stream stream);
/* Why the last ferry_cuda_malloc of this thread failed; NULL if it did not. The caller frees it. */
FERRY_API ferry_status* ferry_cuda_malloc_status(void);
/* The session of these allocations, for posting. It is the library's: never close it. */
FERRY_API ferry_status* ferry_cuda_session(ferry_session** session);
/* The arena that `pointer` is in, and the pointer's offset in it (`offset` may be NULL); NULL if
 * ferry_cuda_malloc did not allocate there. The arena is the allocator's: it lives until the
 * pointer is freed. */
FERRY_API ferry_arena* ferry_cuda_arena(const void* pointer, uint64_t* offset);

#ifdef __cplusplus
}
#endif

#endif /* FERRY_FERRY_CUDA_H_ */
