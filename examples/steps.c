/* SPDX-License-Identifier: Apache-2.0 */
/* What is not in one piece, and what repeats: picked pages of a cache go from device 0 to device 2,
 * and then three steps of one prepared transfer. One end is `steps send`, the other `steps
 * receive`.
 */
#include <ferry/ferry.h>
#include <stdio.h>
#include <string.h>

enum { kPage = 4096, kPages = 8, kSteps = 3 };

static int computed = 0;

/* The next step's bytes; 0 after the last one. */
static int compute(void* data) {
  if (computed == kSteps) return 0;
  memset(data, ++computed, kPage);
  return 1;
}

static ferry_status* send_pages(ferry_session* session, ferry_arena* arena) {
  const uint64_t block_indices[] = {5, 0, 3};
  const size_t block_count = 3;
  ferry_block_table pages = {arena, /*offset=*/0, /*block_bytes=*/4096, block_indices, block_count};
  ferry_transfer cache = {
      .remote_device = 2, .key = "request-17", .key_bytes = 10, .blocks = &pages};
  ferry_batch* batch = NULL;
  ferry_status* bad = ferry_cross_host_send(session, 0, &cache, 1, NULL, &batch);
  if (bad == NULL) bad = ferry_batch_wait(batch, UINT64_MAX);
  ferry_batch_free(batch);
  return bad;
}

static ferry_status* send_steps(ferry_session* session, ferry_arena* arena) {
  ferry_range bytes = {arena, 0, kPage};
  ferry_transfer send = {
      .remote_device = 2, .key = "step", .key_bytes = 4, .ranges = &bytes, .range_count = 1};
  ferry_prepared* step = NULL; /* the receiver: ferry_prepare_receive */
  ferry_status* bad = ferry_prepare_send(session, 0, &send, 1, NULL, &step);
  while (bad == NULL && compute(ferry_arena_data(arena))) {
    bad = ferry_prepared_fire(step, NULL); /* carried out when both ends have fired */
    if (bad == NULL) bad = ferry_prepared_wait(step, ferry_prepared_fired(step), UINT64_MAX);
  }
  ferry_prepared_free(step);
  return bad;
}

static ferry_status* receive_pages(ferry_session* session, ferry_arena* arena) {
  ferry_range bytes = {arena, 0, 3 * kPage}; /* here they are in one piece */
  ferry_transfer cache = {
      .remote_device = 0, .key = "request-17", .key_bytes = 10, .ranges = &bytes, .range_count = 1};
  ferry_batch* batch = NULL;
  ferry_status* bad = ferry_cross_host_receive(session, 2, &cache, 1, NULL, &batch);
  if (bad == NULL) bad = ferry_batch_wait(batch, UINT64_MAX);
  ferry_batch_free(batch);
  const unsigned char* data = (const unsigned char*)ferry_arena_data(arena);
  if (bad == NULL) printf("pages %d %d %d\n", data[0], data[kPage], data[2 * kPage]);
  return bad;
}

static ferry_status* receive_steps(ferry_session* session, ferry_arena* arena) {
  ferry_range bytes = {arena, 0, kPage};
  ferry_transfer receive = {
      .remote_device = 0, .key = "step", .key_bytes = 4, .ranges = &bytes, .range_count = 1};
  ferry_prepared* step = NULL;
  ferry_status* bad = ferry_prepare_receive(session, 2, &receive, 1, NULL, &step);
  for (int i = 0; bad == NULL && i < kSteps; ++i) {
    uint64_t firing = 0;
    bad = ferry_prepared_fire(step, &firing);
    if (bad == NULL) bad = ferry_prepared_wait(step, firing, UINT64_MAX);
    if (bad == NULL) printf("step %d\n", *(const unsigned char*)ferry_arena_data(arena));
  }
  ferry_prepared_free(step);
  return bad;
}

int main(int argc, char** argv) {
  const int sends = argc == 2 && strcmp(argv[1], "send") == 0;
  if (!sends && (argc != 2 || strcmp(argv[1], "receive") != 0)) {
    fprintf(stderr, "usage: steps send | steps receive\n");
    return 2;
  }
  ferry_session* session = NULL;
  ferry_arena* arena = NULL;
  ferry_status* bad = ferry_session_open(NULL, &session);
  if (bad == NULL) {
    bad = ferry_arena_create(session, sends ? 0 : 2, kPages * kPage, /*flags=*/0, &arena);
  }
  if (bad == NULL && sends) {
    for (int page = 0; page < kPages; ++page) {
      memset((char*)ferry_arena_data(arena) + page * kPage, page, kPage);
    }
  }
  if (bad == NULL) bad = sends ? send_pages(session, arena) : receive_pages(session, arena);
  if (bad == NULL) bad = sends ? send_steps(session, arena) : receive_steps(session, arena);
  if (bad != NULL) fprintf(stderr, "%s: %s\n", ferry_status_reason(bad), ferry_status_message(bad));
  const int failed = bad != NULL;
  ferry_status_free(bad);
  ferry_arena_free(arena);
  ferry_session_close(session);
  return failed;
}
