/* SPDX-License-Identifier: Apache-2.0 */
/* libferry: the client of ferryd, the node's transfer daemon. C ABI; ferry.hpp wraps it for C++.
 *
 * In short: open a session, make arenas (memory that the daemon sees too), post batches of sends
 * and receives of ranges of arenas, wait. A transfer pairs the send and the receive of the same
 * (domain, source device, destination device, key), whichever was posted first.
 *
 * A daemon that goes away ends all that was outstanding (DAEMON_LOST). The session outlives it:
 * when the daemon is back, the library attaches the session again, with the same handles, memory,
 * counters and watch. It does not post again what was outstanding: bytes of it may have moved, and
 * the other end was told that it failed, so the application must decide. The new daemon does not
 * know the request ids of the old one.
 *
 * Threads: any thread may call any function that does not say otherwise. The library has one thread
 * for each session (it sees the daemon go and come), gRPC's, one for callbacks and one for a watch.
 * Fork: in a child of fork every call on an inherited session fails with FORKED, and the parent's
 * session is untouched. The child may open a session of its own after exec, or if the parent had
 * opened none before the fork. Structs: set `struct_size` to sizeof; zero means default for every
 * other field. A list without its count is refused, as is a count without its list.
 *
 * Errors: functions return NULL for success, else a ferry_status, which the caller frees. A NULL
 * argument that must not be NULL, and a handle that was freed or closed, are refused with
 * FIELD_INVALID: the violation's field is the argument's name, and nothing was done. Functions that
 * return no status then do nothing and return 0, "", NULL or zeros. The use of a freed handle is
 * noticed until some 64 more of its kind were freed. */
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

typedef struct ferry_session_options {
  size_t struct_size;
  /* Directory with attach.sock and client.sock. NULL: $FERRY_CLIENT_DIR, else `client` in the
   * daemon's runtime directory, which is $FERRY_RUNTIME_DIR, else /run/ferry. */
  const char* client_dir;
  /* For people, in lists and logs: [A-Za-z0-9._-], at most 63 bytes. NULL: the program's name. */
  const char* name;
  /* How long opening may take; 0: 10 s. */
  uint64_t timeout_ns;
  /* Not 0: the session ends with its daemon. 0: it is attached again, for which the library keeps a
   * descriptor of each arena. */
  int no_reattach;
  /* For how long after a loss the library tries to attach again; 0: until the session is closed. */
  uint64_t reattach_timeout_ns;
} ferry_session_options;

/* `options` may be NULL. */
FERRY_API ferry_status* ferry_session_open(const ferry_session_options* options,
                                           ferry_session** session);
/* Ends the session and its handle, and the calls of other threads with CANCELLED. Transfers that
 * are not launched end; arenas go back to the daemon, which is not waited for, but callbacks that
 * run are. Handles of arenas and batches stay good until freed: memory is readable, waits end. */
FERRY_API void ferry_session_close(ferry_session* session);
/* NULL while the daemon is there; else DAEMON_LOST (or FORKED), whose text says whether the session
 * is being attached again. Until it is attached, calls that need the daemon fail with the same. */
FERRY_API ferry_status* ferry_session_health(ferry_session* session);
/* Waits. NULL: the session has its daemon. DEADLINE_EXCEEDED without a reason: `timeout_ns` passed
 * first (UINT64_MAX: no limit). Else the session is lost for good, with the status of
 * ferry_session_health: the time for attaching has passed, or the daemon that came cannot go on
 * with the session. A daemon that drains, is full or cannot be reached is asked again and again. */
FERRY_API ferry_status* ferry_session_wait(ferry_session* session, uint64_t timeout_ns);
/* The session's number in lists and logs of the daemon. It changes with a re-attach, as may the
 * node's name, the devices and the limits below. */
FERRY_API uint64_t ferry_session_id(const ferry_session* session);
FERRY_API const char* ferry_session_node(const ferry_session* session);

typedef struct ferry_device {
  uint64_t global_device_id;
  int kind;               /* 1 host, 2 GPU */
  const char* name;       /* lives as long as the session */
  unsigned char uuid[16]; /* a GPU's, as cuDeviceGetUuid says it; else zeros */
} ferry_device;

FERRY_API size_t ferry_session_devices(const ferry_session* session);
FERRY_API ferry_device ferry_session_device(const ferry_session* session, size_t index);

typedef struct ferry_limits {
  size_t struct_size;
  uint64_t bytes; /* total of all arenas */
  uint64_t arenas;
  uint64_t transfers_in_flight;
  uint32_t batch_transfers; /* in one call */
} ferry_limits;

/* The most that the session may hold. */
FERRY_API ferry_limits ferry_session_limits(const ferry_session* session);

/* ---- Memory ---- */

/* One allocation that both the daemon and this process see. Buffers are ranges of arenas. */
typedef struct ferry_arena ferry_arena;

enum { FERRY_ARENA_NO_POPULATE = 1 /* do not touch the pages: the first use does */ };

/* On a host device: a sealed memfd that this process makes, maps, populates (in huge pages on Linux
 * 6.1 or later) and shows to the daemon. On a GPU: memory that the daemon allocates and this
 * process maps, for that GPU and no other of the process. The process must see the GPU and have
 * libcuda (else DEVICE_UNKNOWN says what to look at), and keeps the GPU's primary context. */
FERRY_API ferry_status* ferry_arena_create(ferry_session* session, uint64_t device, uint64_t bytes,
                                           unsigned flags, ferry_arena** arena);
/* Makes an arena of the application's own memfd, sealed with F_SEAL_SHRINK | F_SEAL_GROW |
 * F_SEAL_SEAL. `memfd` stays the caller's; the arena maps it once more. */
FERRY_API ferry_status* ferry_arena_import(ferry_session* session, uint64_t device, int memfd,
                                           uint64_t bytes, ferry_arena** arena);
/* A host pointer, or a device pointer if the arena is on a GPU. For the application's own GPU
 * memory see ferry_cuda.h. */
FERRY_API void* ferry_arena_data(const ferry_arena* arena);
FERRY_API uint64_t ferry_arena_bytes(const ferry_arena* arena);
/* The arena's number in lists and logs of the daemon. It changes with a re-attach. 0: the daemon
 * that came back did not take the arena (its device is gone, or the quota is smaller). Posting with
 * the arena then fails with the reason, and the next daemon is asked again. */
FERRY_API uint64_t ferry_arena_id(const ferry_arena* arena);
FERRY_API uint64_t ferry_arena_device(const ferry_arena* arena);
/* Copy `bytes` between memory of this process and the arena from `offset`, on a host device or a
 * GPU, and return when the copy is done. They keep no order with streams: what a stream still does
 * with the memory must be over. RANGE_INVALID if the range is not inside the arena. */
FERRY_API ferry_status* ferry_arena_read(const ferry_arena* arena, uint64_t offset, void* to,
                                         uint64_t bytes);
FERRY_API ferry_status* ferry_arena_write(ferry_arena* arena, uint64_t offset, const void* from,
                                          uint64_t bytes);
/* Gives the arena back to the daemon. Refused with FAILED_PRECONDITION while transfers use it:
 * nothing changes then. Its memory stays mapped until ferry_arena_free. */
FERRY_API ferry_status* ferry_arena_release(ferry_arena* arena);
/* Unmaps the arena, and releases it if that was not done: if transfers use it, when the last of
 * them is over. Nothing that runs on a GPU may use its memory any more. NULL is fine. */
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

/* `count` blocks of `block_bytes`; each block starts `stride_bytes` after the start of the block
 * before it. Examples: a column of a matrix, a shard of a weight. */
typedef struct ferry_strided_range {
  const ferry_arena* arena;
  uint64_t offset; /* where the first block starts, bytes from the arena's start */
  uint64_t block_bytes;
  uint64_t stride_bytes;
  uint64_t count; /* at most 1,048,576 */
} ferry_strided_range;

/* Blocks of equal size picked by index, as in a paged KV cache: block i is the `block_bytes` at
 * `offset` + indices[i] * `block_bytes`. */
typedef struct ferry_block_table {
  const ferry_arena* arena;
  uint64_t offset; /* where block 0 starts, bytes from the arena's start */
  uint64_t block_bytes;
  const uint64_t* indices; /* in the order of the transfer's bytes */
  size_t index_count;      /* at most 1,048,576; some 340,000 fill the 1 MiB of one call */
} ferry_block_table;

/* One end of one transfer. Its bytes are given by at most one of `ranges`, `strided` and `blocks`.
 * The other end may be laid out differently; only the number of bytes must agree.
 *
 * A send may be posted before its data exists, a receive before its memory may be overwritten.
 * With has_defined_at = 1, defined_timeline = 5 and defined_value = 42 the transfer starts once the
 * application has called ferry_define(session, 5, 42), or has set a larger value.
 *
 * The deadline counts from posting. A transfer that has not started by then ends. A transfer by
 * tcp, ucx or nccl must have ended by then too, however far its bytes have come (EXECUTING). */
typedef struct ferry_transfer {
  uint64_t remote_device; /* global id: destination of a send, source of a receive */
  const void* key; /* transfer key, 1 to 64 bytes, of one payload only: name the step in it too */
  size_t key_bytes;
  const ferry_range* ranges; /* in order; none, nor `strided`, nor `blocks`: zero bytes */
  size_t range_count;
  const ferry_strided_range* strided; /* or NULL */
  const ferry_block_table* blocks;    /* or NULL */
  int data_type;                      /* compared if both ends name one */
  const int64_t* dims;                /* logical shape; NULL: none is given */
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
  /* The 'over' counter of these transfers, 1 to 63, bound to the device of its first use. Leave it
   * 0 unless you watch counters (ferry_over_wait): the library then picks one for each device
   * (ferry_batch_timeline), counter 0 for the first and from 63 down for others. */
  uint32_t over_timeline;
  uint64_t deadline_ns; /* each transfer's (see ferry_transfer); of a job, to its end; 0: 60 s */
  /* -100 to 100: the order of the session's own transfers that wait for a device, except prepared
   * ones; against other sessions' 50 more is twice the share. The receive's, or if 0 the send's. */
  int32_t priority;
  int route;              /* FERRY_ROUTE_...: this one or failure; ANY: the daemons choose */
  const void* request_id; /* at most 64 bytes; repeating it with the same batch changes nothing */
  size_t request_id_bytes;
  /* A transfer of this session, or 0: while it is in flight a daemon that drains takes this batch
   * too. Ignored for jobs and prepared batches. */
  uint64_t continues;
} ferry_post_options;

/* A posted batch: transfers with ids first_id, first_id + 1, ...; transfer i is over when the
 * 'over' counter `timeline` reaches first_value + i. */
typedef struct ferry_batch ferry_batch;

/* Post all or nothing. The ranges are on `device`, one of the daemon's. `options` may be NULL. The
 * arrays are read before the call returns; a send's bytes must not change until it is over.
 *
 * Batches, also those that are prepared and those of jobs, go to the daemon as one packet of the
 * session's socket. A batch that takes more than 128 KiB there (some 1,500 to 4,096 transfers, or
 * one of tens of thousands of ranges or block indices) goes by a gRPC call, which takes longer. One
 * of more than 1 MiB is refused with BATCH_TOO_LARGE. */
FERRY_API ferry_status* ferry_cross_host_send(ferry_session* session, uint64_t device,
                                              const ferry_transfer* sends, size_t count,
                                              const ferry_post_options* options,
                                              ferry_batch** batch);
FERRY_API ferry_status* ferry_cross_host_receive(ferry_session* session, uint64_t device,
                                                 const ferry_transfer* receives, size_t count,
                                                 const ferry_post_options* options,
                                                 ferry_batch** batch);

/* Receives into new buffers: as above, but `bytes` gives the sizes and `ranges`, `strided` and
 * `blocks` are ignored. One populated arena is made for the batch, with each buffer at a multiple
 * of 256 bytes; `ranges` is filled with where. */
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
/* Waits until every transfer of the batch is over. NULL: all went well. DEADLINE_EXCEEDED without a
 * reason: `timeout_ns` passed first (the batch goes on; UINT64_MAX: no limit). Else the failure of
 * the first transfer that failed, by index. */
FERRY_API ferry_status* ferry_batch_wait(ferry_batch* batch, uint64_t timeout_ns);
/* Waits until one of the batches, all of one session, is over, and returns how it ended as
 * ferry_batch_wait does. `index` is set to its place, the lowest if several are over.
 * DEADLINE_EXCEEDED without a reason: `timeout_ns` passed first, and `index` is unchanged. NULL
 * entries are skipped, as below. */
FERRY_API ferry_status* ferry_wait_any(ferry_batch* const* batches, size_t count,
                                       uint64_t timeout_ns, size_t* index);
/* Waits until all the batches, of any sessions, are over. NULL: all went well. DEADLINE_EXCEEDED
 * without a reason: `timeout_ns` passed first. Else the failure of the first batch that failed.
 * `index`, unless NULL, is set to the place of that batch, or of one that is not over. */
FERRY_API ferry_status* ferry_wait_all(ferry_batch* const* batches, size_t count,
                                       uint64_t timeout_ns, size_t* index);
/* 1 if every transfer of the batch is over, or if `batch` is no batch. */
FERRY_API int ferry_batch_over(const ferry_batch* batch);
/* How transfer `index` ended: NULL if well, else its failure. FAILED_PRECONDITION: not over. */
FERRY_API ferry_status* ferry_batch_transfer_status(ferry_batch* batch, size_t index);
/* Asks the daemon which route, FERRY_ROUTE_..., a transfer of the session takes or took. ANY: none
 * yet, or not known (the daemon keeps the routes of the session's last 4,096 endings). */
FERRY_API int ferry_transfer_route(ferry_session* session, uint64_t id);
/* The same of a batch: `routes` has room for ferry_batch_size, and is unchanged after an error. */
FERRY_API ferry_status* ferry_batch_routes(ferry_batch* batch, int* routes);
/* Ends the transfers that are not launched, with CANCELLED at both ends. */
FERRY_API ferry_status* ferry_batch_cancel(ferry_batch* batch);
/* The data will never be defined, or never taken: ends the transfers that are not launched, with
 * POISONED and `why` at both ends. */
FERRY_API ferry_status* ferry_batch_poison(ferry_batch* batch, const char* why);
/* Calls `done(argument)` once when the batch is over: from a thread of the library, or from here if
 * the batch is over already. `done` must not block for long nor call ferry_session_close. Once a
 * batch, and before it is freed. If this fails `done` is never called. */
FERRY_API ferry_status* ferry_batch_on_over(ferry_batch* batch, void (*done)(void* argument),
                                            void* argument);
/* Forgets the handle; the transfers go on. A callback that was set still comes. NULL is fine. */
FERRY_API void ferry_batch_free(ferry_batch* batch);

/* ---- Prepared transfers ---- */

/* A batch of transfers (of jobs: ferry_prepare_programs) that is checked, matched and routed once
 * and then carried out any number of times. Each carrying out is a firing: a store to shared
 * memory, without a call of the client. Both ends of each transfer are prepared, in whatever
 * batches. Firing n (from 1) of a transfer happens when both ends have fired n times. From the
 * firing until it is over, a send's bytes must be there and a receive's may be overwritten. When
 * one transfer ends (cancelled, the other client or the link is gone, ...), its whole batch ends,
 * and every wait with it.
 *
 * When the daemon is lost the batch ends with DAEMON_LOST; a firing that was over just before may
 * be reported so too. The library prepares the batch again before ferry_session_wait returns: with
 * new transfer ids, firings from 1, and until the deadline for the other end to be prepared
 * again. */
typedef struct ferry_prepared ferry_prepared;

/* As ferry_cross_host_send and _receive, but without defined_at and over_timeline. The deadline
 * holds until the other end is prepared too. At most 256 prepared batches a session. */
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
/* Asks for the next firing at this end; its number goes into `firing` unless that is NULL. Fails
 * while the last firing is not over (FAILED_PRECONDITION), and with why the batch has ended. */
FERRY_API ferry_status* ferry_prepared_fire(ferry_prepared* prepared, uint64_t* firing);
/* Waits until firing `firing` is over. NULL: all of it went well. DEADLINE_EXCEEDED without a
 * reason: `timeout_ns` passed first (UINT64_MAX: no limit). Else why the batch has ended. */
FERRY_API ferry_status* ferry_prepared_wait(ferry_prepared* prepared, uint64_t firing,
                                            uint64_t timeout_ns);
/* How often the batch was fired here; how many of these firings are over and went well. */
FERRY_API uint64_t ferry_prepared_fired(const ferry_prepared* prepared);
FERRY_API uint64_t ferry_prepared_over(const ferry_prepared* prepared);
/* NULL while the batch may be fired or waits for its other ends; else why it has ended. */
FERRY_API ferry_status* ferry_prepared_status(ferry_prepared* prepared);
/* 1 if it has ended, or is no batch; the daemon is not asked, as it is for why. */
FERRY_API int ferry_prepared_ended(const ferry_prepared* prepared);
/* Ends the batch, with CANCELLED at the other ends, and gives it back to the daemon. When this
 * returns the daemon does not touch the batch's memory any more. Once. */
FERRY_API ferry_status* ferry_prepared_release(ferry_prepared* prepared);
/* Releases the batch if that was not done. No other call on it may be in progress. NULL is fine. */
FERRY_API void ferry_prepared_free(ferry_prepared* prepared);

/* ---- Programs ---- */

/* A compute program (docs/programs.md) that the daemon has checked, planned and made ready. The
 * daemon has one for all equal programs, of whichever sessions. */
typedef struct ferry_program ferry_program;

enum { FERRY_FINGERPRINT_BYTES = 32 };

/* Compiles a program's text for `device`, a host device or a GPU of the daemon. Every problem is a
 * violation of the status, with field "text:LINE" or "text:LINE:COLUMN". */
FERRY_API ferry_status* ferry_program_compile(ferry_session* session, uint64_t device,
                                              const char* text, size_t text_bytes,
                                              ferry_program** program);
/* FERRY_FINGERPRINT_BYTES bytes: equal for programs that do the same. */
FERRY_API const unsigned char* ferry_program_fingerprint(const ferry_program* program);
/* The program's steps and their memory, as text for people. */
FERRY_API const char* ferry_program_plan(const ferry_program* program);
/* Bytes of memory that a run takes beside its buffers. */
FERRY_API uint64_t ferry_program_scratch_bytes(const ferry_program* program);

enum { FERRY_READ = 1, FERRY_WRITE, FERRY_READ_WRITE };

typedef struct ferry_program_buffer {
  const char* name; /* lives as long as the program */
  int access;       /* FERRY_READ, ... */
  uint64_t bytes;
  int donated;  /* 1: a run may destroy what the buffer held, although the program only reads it */
  int constant; /* 1: firings after the first of a prepared job may use what the first one read */
} ferry_program_buffer;
FERRY_API size_t ferry_program_buffers(const ferry_program* program);
FERRY_API ferry_program_buffer ferry_program_buffer_at(const ferry_program* program, size_t index);
/* Jobs that run the program go on. NULL is fine. */
FERRY_API void ferry_program_free(ferry_program* program);

/* A buffer's range, of exactly its bytes. A range that a run writes must not overlap any other
 * binding of that run, nor any binding of another run of the same call. */
typedef struct ferry_binding {
  const char* name;
  ferry_range range;
  int data_type; /* FERRY_F32, ...: must be the program's; 0: not compared */
  /* Prepared jobs only: what brings or takes these bytes (ferry_prepare_programs), or NULL. */
  ferry_prepared* transfers;
} ferry_binding;

typedef struct ferry_peer {
  const char* name;       /* what the program calls another end: peer="next" ... */
  uint64_t global_device; /* ... and the device that it is */
} ferry_peer;

typedef struct ferry_run {
  const ferry_program* program;  /* of this session */
  const ferry_binding* bindings; /* one for each buffer, in any order */
  size_t binding_count;
  int has_defined_at;        /* 0: the buffers may be touched now */
  uint32_t defined_timeline; /* else: once this 'defined' counter ... */
  uint64_t defined_value;    /* ... has reached this */
  uint64_t deadline_ns;      /* from posting to the job's end; 0: the batch's */
  /* The run begins when this batch (receives, other jobs) is over; POISONED if it failed. Or
   * NULL. */
  const ferry_batch* after;
  /* When the run has ended well, the daemon advances this 'defined' counter of the session ... */
  uint32_t defines_timeline;
  uint64_t defines_value;   /* ... to this value; 0: none */
  const ferry_batch* feeds; /* sends that wait for the results; poisoned if the run fails */
  /* If the program sends or receives: one entry for each peer that it names ... */
  const ferry_peer* peers;
  size_t peer_count;
  /* ... and what the keys of this run end with, such as a step's number; NULL: nothing */
  const char* key_suffix;
  size_t key_suffix_bytes;
} ferry_run;

/* Posts runs of programs, all or nothing. A posted run is a job: it ends, is waited for, cancelled
 * and watched as a transfer is. `options`' domain and route are for what the programs send and
 * receive by themselves. A program that the daemon has forgotten is compiled again. */
FERRY_API ferry_status* ferry_run_programs(ferry_session* session, uint64_t device,
                                           const ferry_run* runs, size_t count,
                                           const ferry_post_options* options, ferry_batch** batch);

/* Prepares runs of programs: firing n runs each once, without a call; there is no other end. A run
 * has no defined_at, after, defines or feeds; it may be joined to prepared transfers of the
 * session, which its bindings name. From then on the daemon fires those, and ferry_prepared_fire
 * refuses to. Joined sends (of buffers that the program writes) are fired as soon as the buffer is
 * written, and the job's next firing waits for them. Joined receives (of buffers that it reads) are
 * waited for, and fired again as soon as the run needs the bytes no more; the first time at once.
 * So 'receive, compute, send' takes one store a step. Several buffers of one run may name one
 * prepared batch, several runs may not. That batch may cover a part of a buffer's bytes, not none
 * (INVALID_ARGUMENT), must not have been fired, and must outlive the job's handle.
 *
 * If one of the jobs and joined transfers ends, all end: the batch's other jobs with the same
 * reason, the joined transfers with POISONED at both ends. A job that runs ends before its next
 * launch; ferry_prepared_release waits for that. The deadline bounds the wait of each firing, from
 * when it may begin until it starts. */
FERRY_API ferry_status* ferry_prepare_programs(ferry_session* session, uint64_t device,
                                               const ferry_run* runs, size_t count,
                                               const ferry_post_options* options,
                                               ferry_prepared** prepared);

/* ---- Timelines ---- */

/* 'defined' counters, 0 to 63, are the application's: transfers posted with has_defined_at start
 * once the value is reached. Values only grow; a smaller one is ignored. While the daemon is away
 * the call works too: the next daemon finds the value. */
FERRY_API ferry_status* ferry_define(ferry_session* session, uint32_t timeline, uint64_t value);
FERRY_API uint64_t ferry_defined_value(const ferry_session* session, uint32_t timeline);
/* 'over' counters are the daemon's: all transfers with values up to this one are over. */
FERRY_API uint64_t ferry_over_value(const ferry_session* session, uint32_t timeline);
/* Waits until the counter is >= `value`. NULL, or DEADLINE_EXCEEDED. When the daemon is lost the
 * counter goes on to the last posted value, with the failures counted, and a wait for a larger
 * value ends with DAEMON_LOST. The next daemon counts on from there. */
FERRY_API ferry_status* ferry_over_wait(ferry_session* session, uint32_t timeline, uint64_t value,
                                        uint64_t timeout_ns);
/* Of an 'over' counter since the last reset: how many failures, and the lowest value that
 * failed. */
FERRY_API void ferry_over_failures(const ferry_session* session, uint32_t timeline, uint64_t* count,
                                   uint64_t* first_failed);
FERRY_API ferry_status* ferry_over_reset(ferry_session* session, uint32_t timeline);

/* ---- Watch ---- */

/* Calls `ended` for every transfer and job of the session that ends, in order, from a thread of the
 * library: first for those that are over (the daemon keeps the last 65,536), then for each as it
 * ends. `status`, NULL for success, lives during the call only. Transfers that end with the daemon
 * are told one by one, and the watch goes on at the next daemon. A last call, with id 0, says why
 * the session ended and stands for all that had not ended. At most one watcher a session. */
FERRY_API ferry_status* ferry_session_watch(ferry_session* session,
                                            void (*ended)(void* argument, uint64_t transfer_id,
                                                          const ferry_status* status),
                                            void* argument);

#ifdef __cplusplus
}
#endif

#endif /* FERRY_FERRY_H_ */
