/* SPDX-License-Identifier: Apache-2.0 */
/* libferry: the client of ferryd, the node's transfer daemon. C ABI; ferry.hpp wraps it for C++.
 *
 * In short: open a session, make arenas (memory the daemon can see), post sends and receives of
 * ranges of them in batches, wait. A transfer pairs the send and the receive of the same (domain,
 * source device, destination device, key), in whatever order they were posted.
 *
 * A daemon that goes away ends all that was outstanding (DAEMON_LOST), and the session outlives it:
 * when the daemon is back, the session is attached again, with the same handles, memory, counters
 * and watch. What was outstanding is not posted again: bytes of it may have moved, and the other
 * end was told that it failed, so that is for the application to decide. Request ids of before are
 * unknown to the new daemon.
 *
 * Threads: every function may be called from any thread unless it says otherwise. The library has
 * one thread of its own a session (it sees the daemon go and come), gRPC's, one for callbacks and
 * one for a watch. Fork: in a child of fork every call on an inherited session fails with FORKED,
 * and the parent's session is untouched; the child may open its own only after exec, or if no
 * session was opened before the fork. Structs: set `struct_size` to sizeof; zero means default for
 * every other field. A list without its count is refused, as is a count without its list.
 *
 * Errors: functions return NULL for success, else a ferry_status that the caller frees. A pointer
 * that is NULL and may not be, and a handle that was freed or closed, is FIELD_INVALID with the
 * argument's name as the violation's field, and nothing was done; functions that return no status
 * then do nothing and return 0, "", NULL or zeros. A handle after its end is told from others until
 * some 64 more of its kind were freed. */
#ifndef FERRY_FERRY_H_
#define FERRY_FERRY_H_

#include <stddef.h>
#include <stdint.h>

#include "ferry/ferry_cluster.h"
#include "ferry/ferry_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Session ---- */

/* ANY takes the fastest that will do: the session's own socket for batches of up to 128 KiB, if the
 * daemon takes them there, else one open gRPC stream. The others are for comparison. */
enum { FERRY_POST_BY_ANY = 0, FERRY_POST_BY_UNARY, FERRY_POST_BY_STREAM };

typedef struct ferry_session_options {
  size_t struct_size;
  /* Directory with attach.sock and client.sock. NULL: $FERRY_CLIENT_DIR, else `client` in the
   * daemon's runtime directory, which is $FERRY_RUNTIME_DIR, else /run/ferry. */
  const char* client_dir;
  /* For people, in lists and logs: [A-Za-z0-9._-], at most 63 bytes. NULL: the program's name. */
  const char* name;
  /* How long opening may take; 0: 10 s. */
  uint64_t timeout_ns;
  /* FERRY_POST_BY_...: how batches are posted. */
  int post_by;
  /* Not 0: the session ends with its daemon. Else it is attached again, for which it keeps a
   * descriptor of each arena. */
  int no_reattach;
  /* For how long after a loss that is tried; 0: until the session is closed. */
  uint64_t reattach_timeout_ns;
} ferry_session_options;

/* `options` may be NULL. */
FERRY_API ferry_status* ferry_session_open(const ferry_session_options* options,
                                           ferry_session** session);
/* Ends the session: what is in flight and not launched is ended, arenas go back. Handles of its
 * arenas and batches stay valid (memory readable, every wait ends) until they are freed; the
 * session is. */
FERRY_API void ferry_session_close(ferry_session* session);
/* NULL while the daemon is there; else DAEMON_LOST (or FORKED), whose text says whether the session
 * is being attached again. Until it is, calls that need the daemon fail with the same. */
FERRY_API ferry_status* ferry_session_health(ferry_session* session);
/* Waits until the session has its daemon again: NULL (at once if it is there). DEADLINE_EXCEEDED
 * without a reason if `timeout_ns` passed first (UINT64_MAX: no limit). Else it is lost for good,
 * as ferry_session_health says: the time for it is over, or the daemon that came cannot go on with
 * the session. A daemon that drains, is full, or may not be reached is asked again and again. */
FERRY_API ferry_status* ferry_session_wait(ferry_session* session, uint64_t timeout_ns);
/* In lists and logs of the daemon; another one after a re-attach, as are all that follow here. */
FERRY_API uint64_t ferry_session_id(const ferry_session* session);
FERRY_API const char* ferry_session_node(const ferry_session* session);

typedef struct ferry_device {
  uint64_t global_device_id;
  int kind;               /* 1 host, 2 GPU */
  const char* name;       /* lives as long as the session */
  unsigned char uuid[16]; /* of a GPU, as cuDeviceGetUuid says it; else zeros */
} ferry_device;

FERRY_API size_t ferry_session_devices(const ferry_session* session);
FERRY_API ferry_device ferry_session_device(const ferry_session* session, size_t index);

typedef struct ferry_limits {
  size_t struct_size;
  uint64_t bytes; /* of all arenas */
  uint64_t arenas;
  uint64_t transfers_in_flight;
  uint32_t batch_transfers; /* in one call */
} ferry_limits;

/* What the session may hold. */
FERRY_API ferry_limits ferry_session_limits(const ferry_session* session);

/* ---- Memory ---- */

/* One allocation that the daemon sees too. Buffers are ranges of arenas. */
typedef struct ferry_arena ferry_arena;

enum { FERRY_ARENA_NO_POPULATE = 1 /* leave first touch to later */ };

/* On a host device: a sealed memfd made, mapped and populated by this process (in huge pages where
 * Linux, 6.1 or later, has them) and shown to the daemon. On a GPU: memory that the daemon
 * allocates and this process maps, for which the GPU must be visible to it (DEVICE_UNKNOWN says
 * what to look at) and libcuda there; the process then keeps the primary context of that GPU. The
 * memory is mapped for that GPU, not for others of the process. */
FERRY_API ferry_status* ferry_arena_create(ferry_session* session, uint64_t device, uint64_t bytes,
                                           unsigned flags, ferry_arena** arena);
/* The application's own memfd, sealed with F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL. `memfd` stays
 * the caller's; the arena maps it once more. */
FERRY_API ferry_status* ferry_arena_import(ferry_session* session, uint64_t device, int memfd,
                                           uint64_t bytes, ferry_arena** arena);
/* Of a GPU's arena a device pointer; import of the application's own: see ferry_cuda.h. */
FERRY_API void* ferry_arena_data(const ferry_arena* arena);
FERRY_API uint64_t ferry_arena_bytes(const ferry_arena* arena);
/* In lists and logs of the daemon. Another one after a re-attach; 0 if the daemon that came back
 * did not take the arena (its device is gone, or the quota is smaller): posting with it then fails
 * with the reason, and the next daemon is asked again. */
FERRY_API uint64_t ferry_arena_id(const ferry_arena* arena);
FERRY_API uint64_t ferry_arena_device(const ferry_arena* arena);
/* Copies `bytes` between memory of this process and the arena from `offset`, whatever device it is
 * on; done when they return. In no order with streams: what these still do with the memory must be
 * over. RANGE_INVALID if it is not inside the arena. */
FERRY_API ferry_status* ferry_arena_read(const ferry_arena* arena, uint64_t offset, void* to,
                                         uint64_t bytes);
FERRY_API ferry_status* ferry_arena_write(ferry_arena* arena, uint64_t offset, const void* from,
                                          uint64_t bytes);
/* Gives the arena back to the daemon; fails while transfers use it (FAILED_PRECONDITION), and then
 * nothing changed. Its memory stays mapped until ferry_arena_free. */
FERRY_API ferry_status* ferry_arena_release(ferry_arena* arena);
/* Unmaps, and releases if that was not done: if transfers use it, when the last of them is over.
 * Nothing that runs on a GPU may use its memory any more. NULL is fine. */
FERRY_API void ferry_arena_free(ferry_arena* arena);

/* ---- Transfers ---- */

/* Element types: XLA's, numbered as ferry.v1.DataType. */
enum {
  FERRY_UNSPECIFIED = 0,
  FERRY_PRED,
  FERRY_S8,
  FERRY_S16,
  FERRY_S32,
  FERRY_S64,
  FERRY_U8,
  FERRY_U16,
  FERRY_U32,
  FERRY_U64,
  FERRY_F16,
  FERRY_BF16,
  FERRY_F32,
  FERRY_F64,
  FERRY_C64,
  FERRY_C128,
  FERRY_F8E4M3FN,
  FERRY_F8E5M2,
  FERRY_F8E8M0FNU,
  FERRY_F4E2M1FN
};
/* Routes: how bytes travel. The daemons choose; `ferryctl route SRC DST` says which and why. */
enum {
  FERRY_ROUTE_ANY = 0, /* whichever they choose */
  FERRY_ROUTE_LOCAL,   /* between two devices of one daemon: it copies */
  FERRY_ROUTE_MAPPED,  /* between two daemons of one host: one copies out of the other's memory */
  FERRY_ROUTE_UCX,     /* by RDMA, or what else UCX is configured to take */
  FERRY_ROUTE_NCCL,    /* between GPUs, by NCCL */
  FERRY_ROUTE_TCP      /* over TCP connections of the two daemons */
};

typedef struct ferry_range {
  const ferry_arena* arena;
  uint64_t offset; /* bytes from the arena's start */
  uint64_t length; /* bytes; may be 0 */
} ferry_range;

/* `count` blocks of `block_bytes`, the start of each `stride_bytes` after the start of the one
 * before: a column of a matrix, a shard of a weight. */
typedef struct ferry_strided_range {
  const ferry_arena* arena;
  uint64_t offset; /* of the first block, bytes from the arena's start */
  uint64_t block_bytes;
  uint64_t stride_bytes;
  uint64_t count; /* at most 1,048,576 */
} ferry_strided_range;

/* Blocks of equal size picked by index, as in a paged KV cache: block i is the `block_bytes` at
 * `offset` + indices[i] * `block_bytes`. */
typedef struct ferry_block_table {
  const ferry_arena* arena;
  uint64_t offset; /* of block 0, bytes from the arena's start */
  uint64_t block_bytes;
  const uint64_t* indices; /* in order */
  size_t index_count;      /* at most 1,048,576, and what the 1 MiB of a call hold: some 340,000 */
} ferry_block_table;

/* One end of one transfer. Its bytes are `ranges`, `strided` or `blocks`: at most one of them. The
 * other end may be laid out differently; only the number of bytes must agree.
 *
 * A send may be posted before its data exists, a receive before its memory may be overwritten.
 * With has_defined_at = 1, defined_timeline = 5 and defined_value = 42 the transfer starts once the
 * application has called ferry_define(session, 5, 42), or has set a larger value.
 *
 * The deadline counts from posting. Until then the transfer must have started; by tcp, ucx or nccl
 * it must also have ended, however far its bytes have come (EXECUTING). */
typedef struct ferry_transfer {
  uint64_t remote_device; /* global id: destination of a send, source of a receive */
  const void* key; /* transfer key, 1 to 64 bytes; for one payload only: it names the step too */
  size_t key_bytes;
  const ferry_range* ranges; /* in order; none, and neither of the next two: zero bytes */
  size_t range_count;
  const ferry_strided_range* strided; /* or NULL */
  const ferry_block_table* blocks;    /* or NULL */
  int data_type;                      /* compared if both ends say one */
  const int64_t* dims;                /* logical shape; NULL: not said */
  size_t dim_count;                   /* 0 with `dims`: a scalar */
  int has_defined_at;                 /* 0: the bytes may be touched now */
  uint32_t defined_timeline;          /* else: once this 'defined' counter ... */
  uint64_t defined_value;             /* ... has reached this */
  uint64_t deadline_ns;               /* as said above; 0: the batch's */
} ferry_transfer;

typedef struct ferry_post_options {
  size_t struct_size;
  /* The job's secret name, at most 32 bytes. Only ends of one domain meet. NULL: the domain of this
   * process's numeric user id, which is the same at every node. */
  const void* domain;
  size_t domain_bytes;
  /* Leave it 0 unless you watch counters yourself (ferry_over_wait). Else the 'over' counter of
   * these transfers, 1 to 63, which is bound to the device of its first use at this daemon. With 0
   * the library takes one for each device, which ferry_batch_timeline says: counter 0 for the first
   * device that posts so, for others from 63 down one that was not named before. */
  uint32_t over_timeline;
  uint64_t deadline_ns; /* of each transfer as ferry_transfer says, of a job to its end; 0: the
                         * daemon's default, 60 s */
  int32_t priority;     /* -100 to 100: the session's own transfers that wait for a device go in its
                         * order; against other sessions 50 more is twice the share. The receive's
                         * counts, unless it is 0; then the send's */
  int route;            /* insist on one */
  const void* request_id; /* at most 64 bytes; repeating it with the same batch changes nothing */
  size_t request_id_bytes;
  uint64_t continues; /* a transfer of the session, or 0: as long as it is in flight a daemon that
                       * drains takes these too. Means nothing to jobs and prepared transfers */
} ferry_post_options;

/* A posted batch: transfers with ids first_id, first_id + 1, ...; transfer i is over when the
 * 'over' counter `timeline` reaches first_value + i. */
typedef struct ferry_batch ferry_batch;

/* All or nothing. `device` is the daemon's device that the ranges are on. `options` may be NULL.
 * The arrays are read before it returns; a send's bytes must stay as they are until it is over. */
FERRY_API ferry_status* ferry_cross_host_send(ferry_session* session, uint64_t device,
                                              const ferry_transfer* sends, size_t count,
                                              const ferry_post_options* options,
                                              ferry_batch** batch);
FERRY_API ferry_status* ferry_cross_host_receive(ferry_session* session, uint64_t device,
                                                 const ferry_transfer* receives, size_t count,
                                                 const ferry_post_options* options,
                                                 ferry_batch** batch);

/* Receives into newly allocated buffers: as above, but byte counts say what `ranges` (`strided`,
 * `blocks`) would; one populated arena is made for the batch, each buffer at a multiple of 256
 * bytes in it. The ranges say where. */
FERRY_API ferry_status* ferry_cross_host_receive_new(ferry_session* session, uint64_t device,
                                                     const ferry_transfer* receives,
                                                     const uint64_t* bytes, size_t count,
                                                     const ferry_post_options* options,
                                                     ferry_arena** arena, ferry_range* ranges,
                                                     ferry_batch** batch);

FERRY_API size_t ferry_batch_size(const ferry_batch* batch);
FERRY_API uint64_t ferry_batch_first_id(const ferry_batch* batch);
FERRY_API uint32_t ferry_batch_timeline(const ferry_batch* batch);
FERRY_API uint64_t ferry_batch_first_value(const ferry_batch* batch);
/* Waits until all of the batch is over. NULL: all went well. Else the first failure of the batch;
 * or DEADLINE_EXCEEDED without a reason if `timeout_ns` passed first (the batch goes on;
 * UINT64_MAX: no limit). */
FERRY_API ferry_status* ferry_batch_wait(ferry_batch* batch, uint64_t timeout_ns);
/* Waits until one of these, all of one session, is over: its place into `index`, the lowest of
 * several, and how it ended as ferry_batch_wait says. DEADLINE_EXCEEDED without a reason if
 * `timeout_ns` passed first (`index` stays as it was). NULL entries are passed over, as below. */
FERRY_API ferry_status* ferry_wait_any(ferry_batch* const* batches, size_t count,
                                       uint64_t timeout_ns, size_t* index);
/* Waits until all of these, of whichever sessions, are over. NULL: all went well. Else the failure
 * of the first that failed, its place into `index` unless that is NULL; or DEADLINE_EXCEEDED
 * without a reason if `timeout_ns` passed first, and the place of one that is not over. */
FERRY_API ferry_status* ferry_wait_all(ferry_batch* const* batches, size_t count,
                                       uint64_t timeout_ns, size_t* index);
/* 1 if all of the batch is over, and of what is no batch. */
FERRY_API int ferry_batch_over(const ferry_batch* batch);
/* How transfer `index` ended: NULL well, else its failure. FAILED_PRECONDITION while it is not
 * over. */
FERRY_API ferry_status* ferry_batch_transfer_status(ferry_batch* batch, size_t index);
/* The route that a transfer of the session took, or takes: FERRY_ROUTE_...; ANY while it has none,
 * and if the daemon does not know: of what is over it keeps that of the session's last 4,096
 * endings. A call to the daemon. */
FERRY_API int ferry_transfer_route(ferry_session* session, uint64_t id);
/* Asks what is not launched yet to end: CANCELLED, at both ends. */
FERRY_API ferry_status* ferry_batch_cancel(ferry_batch* batch);
/* The data will never be defined, or never taken: what is not launched ends with POISONED and
 * `why`, at both ends. */
FERRY_API ferry_status* ferry_batch_poison(ferry_batch* batch, const char* why);
/* Calls `done(argument)` once when the batch is over, from a thread of the library (at once from
 * here if it is over already). No long blocking, no ferry_session_close in it. Set before the batch
 * is freed, once. After an error it is never called. */
FERRY_API ferry_status* ferry_batch_on_over(ferry_batch* batch, void (*done)(void* argument),
                                            void* argument);
/* Forgets the handle; the transfers go on. A callback that was set still comes. NULL is fine. */
FERRY_API void ferry_batch_free(ferry_batch* batch);

/* ---- Prepared transfers ---- */

/* A batch of transfers (of jobs: ferry_prepare_programs) that is checked, matched and routed once
 * and then carried out any number of times, each by a store to shared memory: no call, no message
 * of the client's. Both ends are prepared, and may put their transfers into batches as they like.
 * Firing n (from 1) of a transfer happens when both ends have fired n times; the bytes must be
 * there, and free to be overwritten, from the firing until it is over. When a transfer ends
 * (cancelled, its other client or the link is gone, ...) its whole batch ends, and every wait with
 * it.
 *
 * When the daemon is lost the batch ends with DAEMON_LOST; a firing that was over just before may
 * be told so too. When the session is attached again (ferry_session_wait) the library has prepared
 * the batch again: with new transfer ids, firings that count from 1, and until the deadline for the
 * other end, which must be prepared again too. */
typedef struct ferry_prepared ferry_prepared;

/* As ferry_cross_host_send and _receive, but without defined_at, and over_timeline means nothing. A
 * deadline counts until the other end is prepared too. At most 256 prepared batches a session. */
FERRY_API ferry_status* ferry_prepare_send(ferry_session* session, uint64_t device,
                                           const ferry_transfer* sends, size_t count,
                                           const ferry_post_options* options,
                                           ferry_prepared** prepared);
FERRY_API ferry_status* ferry_prepare_receive(ferry_session* session, uint64_t device,
                                              const ferry_transfer* receives, size_t count,
                                              const ferry_post_options* options,
                                              ferry_prepared** prepared);
FERRY_API size_t ferry_prepared_size(const ferry_prepared* prepared);
FERRY_API uint64_t ferry_prepared_first_id(const ferry_prepared* prepared);
/* The next firing, at this end; its number into `firing` unless that is NULL. FAILED_PRECONDITION
 * while the last one is not over; why it has ended, if it has. */
FERRY_API ferry_status* ferry_prepared_fire(ferry_prepared* prepared, uint64_t* firing);
/* Waits until firing `firing` is over. NULL: all of it went well. Else why the batch has ended; or
 * DEADLINE_EXCEEDED without a reason if `timeout_ns` passed first (UINT64_MAX: no limit). */
FERRY_API ferry_status* ferry_prepared_wait(ferry_prepared* prepared, uint64_t firing,
                                            uint64_t timeout_ns);
/* How often it was fired here, and how many of these firings are over and went well. */
FERRY_API uint64_t ferry_prepared_fired(const ferry_prepared* prepared);
FERRY_API uint64_t ferry_prepared_over(const ferry_prepared* prepared);
/* NULL while it may be fired, or waits for its other ends; else why it has ended. */
FERRY_API ferry_status* ferry_prepared_status(ferry_prepared* prepared);
/* Ends it, with CANCELLED at the other ends, and gives it back to the daemon. When this returns its
 * memory is not touched any more. Once. */
FERRY_API ferry_status* ferry_prepared_release(ferry_prepared* prepared);
/* Releases it first if that was not done. No other call on it may be going on. NULL is fine. */
FERRY_API void ferry_prepared_free(ferry_prepared* prepared);

/* ---- Programs ---- */

/* A compute program (docs/programs.md) that the daemon has checked, planned and made ready. It is
 * not the session's alone: equal programs are one. */
typedef struct ferry_program ferry_program;

enum { FERRY_FINGERPRINT_BYTES = 32 };

/* From a program's text; `device` is the host device that it is to run on. Every problem is a
 * violation of the status, its field "text:LINE" or "text:LINE:COLUMN". */
FERRY_API ferry_status* ferry_program_compile(ferry_session* session, uint64_t device,
                                              const char* text, size_t text_bytes,
                                              ferry_program** program);
/* FERRY_FINGERPRINT_BYTES: what the program does. */
FERRY_API const unsigned char* ferry_program_fingerprint(const ferry_program* program);
/* Its steps and their memory, for people. */
FERRY_API const char* ferry_program_plan(const ferry_program* program);
/* What a run takes beside its buffers. */
FERRY_API uint64_t ferry_program_scratch_bytes(const ferry_program* program);

enum { FERRY_READ = 1, FERRY_WRITE, FERRY_READ_WRITE };

typedef struct ferry_program_buffer {
  const char* name; /* lives as long as the program */
  int access;       /* FERRY_READ, ... */
  uint64_t bytes;
  int donated;  /* 1: what it held may be destroyed, although it is only read */
  int constant; /* 1: firings of a prepared job after the first may not see that it has changed */
} ferry_program_buffer;
FERRY_API size_t ferry_program_buffers(const ferry_program* program);
FERRY_API ferry_program_buffer ferry_program_buffer_at(const ferry_program* program, size_t index);
/* Jobs of it go on. NULL is fine. */
FERRY_API void ferry_program_free(ferry_program* program);

/* What a buffer of a program is bound to, with exactly its bytes. What a run writes nothing else of
 * it, and no other run of the same call, may touch. */
typedef struct ferry_binding {
  const char* name;
  ferry_range range;
  int data_type; /* FERRY_F32, ...: compared with the program's, unless it is 0 */
  /* Of prepared jobs: what these bytes come or go by (ferry_prepare_programs). NULL: nothing */
  ferry_prepared* transfers;
} ferry_binding;

typedef struct ferry_peer {
  const char* name;       /* of another end, as a program has it: peer="next" ... */
  uint64_t global_device; /* ... and which device that is */
} ferry_peer;

typedef struct ferry_run {
  const ferry_program* program;  /* of this session */
  const ferry_binding* bindings; /* one for each buffer, in any order */
  size_t binding_count;
  int has_defined_at;        /* 0: the buffers may be touched now */
  uint32_t defined_timeline; /* else: once this 'defined' counter ... */
  uint64_t defined_value;    /* ... has reached this */
  uint64_t deadline_ns;      /* to its end, from posting; 0: the batch's */
  /* Begins when that (receives, other jobs) is over; if it failed, POISONED. NULL: nothing. */
  const ferry_batch* after;
  /* When it has ended well the daemon advances this 'defined' counter for the application ... */
  uint32_t defines_timeline;
  uint64_t defines_value;   /* ... to this; 0: none */
  const ferry_batch* feeds; /* sends that wait for its results; if it fails they are poisoned */
  /* Of a program that sends or receives: one for each peer that it names ... */
  const ferry_peer* peers;
  size_t peer_count;
  /* ... and what its keys end with in this run, such as the number of a step; NULL: nothing */
  const char* key_suffix;
  size_t key_suffix_bytes;
} ferry_run;

/* Posts runs of programs: jobs, which end, are waited for, cancelled and watched as transfers are.
 * All or nothing. Domain and route are those of what programs send and receive by themselves. A
 * program that the daemon has forgotten is compiled again. */
FERRY_API ferry_status* ferry_run_programs(ferry_session* session, uint64_t device,
                                           const ferry_run* runs, size_t count,
                                           const ferry_post_options* options, ferry_batch** batch);

/* As ferry_run_programs, but prepared: firing n runs each of them once, without a call; there is no
 * other end. A run has no defined_at, after, defines or feeds: it is joined to prepared transfers
 * of the session, which its bindings name and which the daemon fires for it from then on, while
 * ferry_prepared_fire refuses to. Sends, of what the program writes, are fired as soon as that is
 * written, and the job's next firing waits for them; receives, of what it reads, are waited for,
 * and fired again as soon as nothing of the run needs what came, the first time at once. So one
 * store a step is all that a client does for 'receive, compute, send'. Buffers of one run may name
 * the same batch, runs may not; it may have a part of their bytes, but not none
 * (INVALID_ARGUMENT), must not have been fired before, and must outlive the job's handle.
 *
 * The jobs and what they are joined to end together: one ends, the other jobs of the batch with its
 * reason, the transfers with POISONED, at both ends. One that runs ends before its
 * next launch; ferry_prepared_release waits for that. The deadline is that of a firing, from when
 * it may begin to its start. */
FERRY_API ferry_status* ferry_prepare_programs(ferry_session* session, uint64_t device,
                                               const ferry_run* runs, size_t count,
                                               const ferry_post_options* options,
                                               ferry_prepared** prepared);

/* ---- Timelines ---- */

/* 'defined' counters are the application's, 0 to 63: transfers posted with has_defined_at start
 * once the value is reached. Values only grow; a smaller one is ignored. NULL while the daemon is
 * away too: the next one finds the value. */
FERRY_API ferry_status* ferry_define(ferry_session* session, uint32_t timeline, uint64_t value);
FERRY_API uint64_t ferry_defined_value(const ferry_session* session, uint32_t timeline);
/* 'over' counters are the daemon's: a low-water mark in the order of posting. */
FERRY_API uint64_t ferry_over_value(const ferry_session* session, uint32_t timeline);
/* Waits until over >= value. NULL, or DEADLINE_EXCEEDED. When the daemon is lost every posted value
 * is reached, with failures counted, and a wait for another one ends with DAEMON_LOST. Values go on
 * from there at the next daemon. */
FERRY_API ferry_status* ferry_over_wait(ferry_session* session, uint32_t timeline, uint64_t value,
                                        uint64_t timeout_ns);
/* Failures of an 'over' counter since the last reset: how many, and the lowest value that failed.
 */
FERRY_API void ferry_over_failures(const ferry_session* session, uint32_t timeline, uint64_t* count,
                                   uint64_t* first_failed);
FERRY_API ferry_status* ferry_over_reset(ferry_session* session, uint32_t timeline);

/* ---- Watch ---- */

/* Calls `ended` for every transfer of the session that ends, in order, from a thread of the
 * library: first for those that are over already (the daemon keeps the last 65,536), then as they
 * end. `status`, NULL for success, lives during the call only. Those that end with the daemon are
 * told one by one, and the watch goes on at the next daemon. A last call, with id 0, says why the
 * session ended and stands for all that had not ended. At most one watcher a session. */
FERRY_API ferry_status* ferry_session_watch(ferry_session* session,
                                            void (*ended)(void* argument, uint64_t transfer_id,
                                                          const ferry_status* status),
                                            void* argument);

#ifdef __cplusplus
}
#endif

#endif /* FERRY_FERRY_H_ */
