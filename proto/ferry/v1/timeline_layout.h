/* SPDX-License-Identifier: Apache-2.0 */
/* The session's timelines: shared memory between one client and its daemon, as much a part of the
 * wire as the protos. The memfd is FERRY_TIMELINE_BYTES long: one page of 'over' counters, which
 * the daemon writes; one of 'defined' counters, which the client writes; one of signals; then the
 * 'over' and the 'defined' words of prepared batches. Both sides map it
 * read-write. The daemon believes nothing that it reads here but a 'defined' value.
 *
 * To wait for over[i] >= w: increment `waiters`, look again, then FUTEX_WAIT (shared) on the low
 * 32 bits of `value`. To advance a value: store the failure fields, then the value with release
 * order, then look at `waiters` (sequentially consistent) and wake.
 *
 * To fire prepared batch i the nth time, both ends store n in prepared_defined[i], each once its
 * prepared_over[i] is n - 1. Firing n is over at an end when prepared_over[i] reaches n there.
 * When the batch ends, first_failed is the first firing that was not carried out, and the value
 * becomes FERRY_PREPARED_ENDED, which releases a waiter for any firing. That is the largest signed
 * number because a GPU's stream compares by the sign of the difference.
 *
 * Both words are 0 when the number i is given out. In a session that was resumed with
 * Resume.prepared_from (ferry/v1/session.proto) they begin at prepared_from, and all these values,
 * first_failed too, count from there. So nothing that waits for a value of an older life is left
 * waiting. */
#ifndef FERRY_V1_TIMELINE_LAYOUT_H_
#define FERRY_V1_TIMELINE_LAYOUT_H_

#include <stdint.h>

#define FERRY_TIMELINE_COUNTERS 64
#define FERRY_PREPARED_BATCHES 256
#define FERRY_PREPARED_ENDED ((uint64_t)INT64_MAX)
#define FERRY_TIMELINE_PAGE 4096
#define FERRY_TIMELINE_BASE_BYTES (3 * FERRY_TIMELINE_PAGE)
#define FERRY_TIMELINE_BYTES (FERRY_TIMELINE_BASE_BYTES + 2 * FERRY_PREPARED_BATCHES * 64)

/* One counter, in a cache line of its own. */
struct ferry_timeline_line {
  uint64_t value;        /* over: all transfers with values up to this are over; defined: reached */
  uint64_t first_failed; /* over: the lowest value whose transfer failed since the reset, or 0 */
  uint64_t failures;     /* over: how many failed since the reset */
  uint32_t waiters;      /* over: client threads that sleep on `value` */
  uint32_t reserved[9];
};

struct ferry_timeline_signals {
  uint32_t lane_parked; /* not 0: a lane waits for a 'defined' value of this session. After storing
                           a value (sequentially consistent), write 1 to the doorbell eventfd */
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
