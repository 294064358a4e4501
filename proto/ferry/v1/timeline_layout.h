/* SPDX-License-Identifier: Apache-2.0 */
/* The session's timelines: shared memory between one client and its daemon, part of the wire as
 * much as the protos are. The memfd is FERRY_TIMELINE_BYTES long: one page of 'over' counters
 * (written by the daemon), one of 'defined' counters (written by the client), one of signals; then
 * the 'over' and the 'defined' words of prepared batches, which a daemon that has none leaves out
 * (the memfd is FERRY_TIMELINE_BASE_BYTES long then). Both ends map it read-write; the daemon
 * believes nothing it reads here but a 'defined' value.
 *
 * A waiter for over[i] >= w: increment `waiters`, look again, FUTEX_WAIT (shared) on the low 32
 * bits of `value`. Who advances a value stores the failure fields first, then the value with
 * release order, then looks at `waiters` (sequentially consistent) and wakes.
 *
 * Prepared batch i is fired the nth time by storing n in prepared_defined[i] at both ends, once
 * prepared_over[i] is n - 1; firing n is over at this end when prepared_over[i] reaches n. When the
 * batch ends, first_failed is the first firing that was not carried out, and the value is
 * FERRY_PREPARED_ENDED, so that whoever waits for any firing is released: also a GPU's stream,
 * which compares by the sign of the difference, so that it is the largest signed number.
 *
 * Both words are 0 when the number i is given out. In a session that was resumed with
 * Resume.prepared_from (ferry/v1/session.proto) they are that, and all these values count from
 * there, first_failed too: so nothing that waits for a value of an older life is left waiting. */
#ifndef FERRY_V1_TIMELINE_LAYOUT_H_
#define FERRY_V1_TIMELINE_LAYOUT_H_

#include <stdint.h>

#define FERRY_TIMELINE_COUNTERS 64
#define FERRY_PREPARED_BATCHES 256
#define FERRY_PREPARED_ENDED ((uint64_t)INT64_MAX)
#define FERRY_TIMELINE_PAGE 4096
#define FERRY_TIMELINE_BASE_BYTES (3 * FERRY_TIMELINE_PAGE)
#define FERRY_TIMELINE_BYTES (FERRY_TIMELINE_BASE_BYTES + 2 * FERRY_PREPARED_BATCHES * 64)

/* One counter; a cache line. */
struct ferry_timeline_line {
  uint64_t value;        /* over: all transfers up to this one are over; defined: reached */
  uint64_t first_failed; /* over: the lowest value whose transfer failed since the reset, or 0 */
  uint64_t failures;     /* over: how many failed since the reset */
  uint32_t waiters;      /* over: client threads that sleep on `value` */
  uint32_t reserved[9];
};

struct ferry_timeline_signals {
  uint32_t lane_parked; /* not 0: a lane waits for a 'defined' value of this session; after storing
                           one (sequentially consistent), write 1 to the doorbell eventfd */
  uint32_t events;      /* counts up with every advance of any 'over' counter; a futex word */
  uint32_t event_waiters; /* client threads that sleep on `events` */
  uint32_t reserved[13];
  uint8_t rest[FERRY_TIMELINE_PAGE - 64];
};

struct ferry_timeline_pages {
  struct ferry_timeline_line over[FERRY_TIMELINE_COUNTERS];
  struct ferry_timeline_line defined[FERRY_TIMELINE_COUNTERS];
  struct ferry_timeline_signals signals;
  struct ferry_timeline_line prepared_over[FERRY_PREPARED_BATCHES];
  struct ferry_timeline_line prepared_defined[FERRY_PREPARED_BATCHES];
};

#endif /* FERRY_V1_TIMELINE_LAYOUT_H_ */
