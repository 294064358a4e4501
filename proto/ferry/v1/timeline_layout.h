/* SPDX-License-Identifier: Apache-2.0 */
/* The session's timelines: shared memory between one client and its daemon, part of the wire as
 * much as the protos are. The memfd is FERRY_TIMELINE_BYTES long: one page of 'over' counters
 * (written by the daemon), one of 'defined' counters (written by the client), one of signals. Both
 * ends map it read-write; the daemon believes nothing it reads here but a 'defined' value.
 *
 * A waiter for over[i] >= w: increment `waiters`, look again, FUTEX_WAIT (shared) on the low 32
 * bits of `value`. Who advances a value stores the failure fields first, then the value with
 * release order, then looks at `waiters` (sequentially consistent) and wakes. */
#ifndef FERRY_V1_TIMELINE_LAYOUT_H_
#define FERRY_V1_TIMELINE_LAYOUT_H_

#include <stdint.h>

#define FERRY_TIMELINE_COUNTERS 64
#define FERRY_TIMELINE_PAGE 4096
#define FERRY_TIMELINE_BYTES (3 * FERRY_TIMELINE_PAGE)

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
};

struct ferry_timeline_pages {
  struct ferry_timeline_line over[FERRY_TIMELINE_COUNTERS];
  struct ferry_timeline_line defined[FERRY_TIMELINE_COUNTERS];
  struct ferry_timeline_signals signals;
};

#endif /* FERRY_V1_TIMELINE_LAYOUT_H_ */
