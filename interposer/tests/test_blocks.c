/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of live blocks: against a plain array, over growth, in many threads. */
#include "blocks.h"

#include <pthread.h>

#include "check.h"

#define BLOCKS 20000u

static uint64_t address_of(uint64_t i) { return 0x100000000000ull + i * 512; }

static void add(uint64_t address, uint64_t bytes, void *context) {
  struct block block = {.address = address, .bytes = bytes, .context = context, .card = 3}, stale;
  CHECK(blocks_add(&block, &stale));
  CHECK_EQUAL(stale.address, 0);
}

static void test_every_block_is_found_once(void) {
  struct block taken;
  for (uint64_t i = 0; i < BLOCKS; i++) add(address_of(i), i, NULL);
  for (uint64_t i = 0; i < BLOCKS; i += 2) {
    CHECK(blocks_take(BLOCK_ADDRESS, address_of(i), &taken));
    CHECK_EQUAL(taken.bytes, i);
    CHECK_EQUAL(taken.card, 3);
    CHECK(!blocks_take(BLOCK_ADDRESS, address_of(i), &taken));
  }
  for (uint64_t i = 1; i < BLOCKS; i += 2) CHECK(blocks_take(BLOCK_ADDRESS, address_of(i), &taken));
  CHECK(!blocks_take(BLOCK_ADDRESS, address_of(BLOCKS), &taken));
  CHECK(!blocks_take(BLOCK_ADDRESS, 0, &taken));
}

static void test_an_address_that_comes_back_ousts_the_stale_block(void) {
  struct block block = {.address = address_of(1), .bytes = 7}, stale, taken;
  CHECK(blocks_add(&block, &stale));
  block.bytes = 9;
  CHECK(blocks_add(&block, &stale));
  CHECK_EQUAL(stale.bytes, 7);
  CHECK(blocks_take(BLOCK_ADDRESS, address_of(1), &taken));
  CHECK_EQUAL(taken.bytes, 9);
  CHECK(!blocks_take(BLOCK_ADDRESS, address_of(1), &taken));
}

static uint64_t released;
static void release(const struct block *block) { released += block->bytes; }

static void test_a_context_takes_its_blocks_along(void) {
  int first, second;
  struct block taken;
  for (uint64_t i = 0; i < 1000; i++) add(address_of(i), 1, i % 2 == 0 ? &first : &second);
  blocks_take_context(&first, release);
  CHECK_EQUAL(released, 500);
  for (uint64_t i = 0; i < 1000; i++) CHECK_EQUAL(blocks_take(BLOCK_ADDRESS, address_of(i), &taken), i % 2);
}

static void *churn(void *argument) {
  uint64_t base = (uint64_t)(uintptr_t)argument * 100000;
  struct block taken;
  for (int round = 0; round < 20; round++) {
    for (uint64_t i = 0; i < 500; i++) add(address_of(base + i), base + i, NULL);
    for (uint64_t i = 0; i < 500; i++) {
      CHECK(blocks_take(BLOCK_ADDRESS, address_of(base + i), &taken));
      CHECK_EQUAL(taken.bytes, base + i);
    }
  }
  return NULL;
}

static void test_threads_do_not_disturb_each_other(void) {
  pthread_t threads[8];
  for (uintptr_t i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], NULL, churn, (void *)i) == 0);
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
}

int main(void) {
  test_every_block_is_found_once();
  test_an_address_that_comes_back_ousts_the_stale_block();
  test_a_context_takes_its_blocks_along();
  test_threads_do_not_disturb_each_other();
  puts("blocks: ok");
}
