/* SPDX-License-Identifier: Apache-2.0
 *
 * The sequence lock: a reader never takes two writes for one. */
#include "limits.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "atomics.h"
#include "check.h"

#define WRITES 20000u

static struct tessera_limits shared;
static atomic_bool done;

static struct tessera_limits value_of(uint32_t i) {
  struct tessera_limits value;
  memset(&value, 0, sizeof value);
  value.memory_bytes = i + 1;
  value.guaranteed_cores = i;
  value.effective_cores = i;
  value.cap_count = 1;
  value.caps[0].memory_bytes = i + 1;
  return value;
}

static void *write_all(void *argument) {
  for (uint32_t i = 0; i < WRITES; i++) {
    struct tessera_limits value = value_of(i);
    limits_write(&shared, &value);
  }
  atomic_store(&done, true);
  return argument;
}

static void test_readers_see_one_write(void) {
  pthread_t writer;
  uint32_t reads = 0;
  CHECK(pthread_create(&writer, NULL, write_all, NULL) == 0);
  do {
    struct tessera_limits copy;
    if (!limits_read(&shared, &copy)) continue;
    CHECK_EQUAL(copy.caps[0].memory_bytes, copy.memory_bytes);
    CHECK_EQUAL(copy.guaranteed_cores, copy.effective_cores);
    reads++;
  } while (!atomic_load(&done));
  pthread_join(writer, NULL);
  CHECK(reads > 0);
  CHECK_EQUAL(shared.sequence, 2 * WRITES);
}

static void test_an_unfinished_write_is_noticed_and_repaired(void) {
  struct tessera_limits copy, value = value_of(5);
  shared.sequence |= 1;
  CHECK(!limits_read(&shared, &copy));
  limits_write(&shared, &value);
  CHECK(limits_read(&shared, &copy));
  CHECK_EQUAL(copy.memory_bytes, 6);
}

static void test_cores_by_policy_and_lease(void) {
  static const struct {
    uint32_t policy, guaranteed, effective, cores;
    uint64_t lease;
  } rows[] = {
      {TESSERA_POLICY_DEFAULT, 30, 70, 70, 1001},    {TESSERA_POLICY_DEFAULT, 30, 70, 30, 1000},
      {TESSERA_POLICY_DEFAULT, 30, 70, 30, 0},       {TESSERA_POLICY_DEFAULT, 30, 100, 100, 1001},
      {TESSERA_POLICY_DEFAULT, 30, 1000, 100, 1001}, {TESSERA_POLICY_DEFAULT, 0, 0, 0, 1001},
      {TESSERA_POLICY_DEFAULT, 0, 40, 40, 1001},     {TESSERA_POLICY_DEFAULT, 100, 100, 0, 0},
      {TESSERA_POLICY_DEFAULT, 100, 50, 50, 1001},   {TESSERA_POLICY_FORCE, 30, 70, 30, 1001},
      {TESSERA_POLICY_DISABLE, 30, 70, 0, 1001},
  };
  for (unsigned int i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct tessera_limits limits;
    memset(&limits, 0, sizeof limits);
    limits.policy = rows[i].policy;
    limits.guaranteed_cores = rows[i].guaranteed;
    limits.effective_cores = rows[i].effective;
    limits.lease_until_ns = rows[i].lease;
    CHECK_EQUAL(limits_pace(&limits, 1000).cores, rows[i].cores);
  }
}

static void test_stretch_ends_half_a_minute_after_the_lease(void) {
  static const uint64_t end = 1000 + 30000000000u;
  struct tessera_limits limits;
  memset(&limits, 0, sizeof limits);
  limits.stretch = 2500;
  limits.stretch_unlent = 1700;
  CHECK_EQUAL(limits_pace(&limits, 999).stretch, LIMITS_NO_STRETCH); /* never leased */
  limits.lease_until_ns = 1000;
  CHECK_EQUAL(limits_pace(&limits, 999).stretch, 2500);
  CHECK_EQUAL(limits_pace(&limits, 1000).stretch, 1700);
  CHECK_EQUAL(limits_pace(&limits, end - 1).stretch, 1700);
  CHECK_EQUAL(limits_pace(&limits, end).stretch, LIMITS_NO_STRETCH);
  limits.stretch = 1; /* never dearer than measured */
  CHECK_EQUAL(limits_pace(&limits, 999).stretch, LIMITS_NO_STRETCH);
}

static void test_validity(void) {
  struct tessera_limits limits = value_of(1);
  limits.magic = TESSERA_LIMITS_MAGIC;
  limits.version = TESSERA_LIMITS_VERSION;
  limits.size = sizeof limits;
  CHECK(limits_valid(&limits, sizeof limits));
  CHECK(limits_valid(&limits, TESSERA_LIMITS_SIZE_0)); /* without what was added since */
  CHECK(!limits_valid(&limits, TESSERA_LIMITS_SIZE_0 - 1));
  limits.version++;
  CHECK(!limits_valid(&limits, sizeof limits));
  limits.version--;
  limits.size += 8; /* a newer minor layout */
  CHECK(limits_valid(&limits, sizeof limits + 8));
  limits.memory_bytes = 0; /* must never mean unlimited */
  CHECK(!limits_valid(&limits, sizeof limits));
}

static void test_the_least_of_each_is_taken_of_the_caps(void) {
  memset(&shared, 0, sizeof shared);
  CHECK_EQUAL(limits_tightest_cap(&shared).memory_bytes, 0);
  shared.cap_count = 3;
  shared.caps[0] = (struct tessera_cap){.memory_bytes = 7, .cores = 0};
  shared.caps[1] = (struct tessera_cap){.memory_bytes = 0, .cores = 30};
  shared.caps[2] = (struct tessera_cap){.memory_bytes = 5, .cores = 40};
  shared.caps[3] = (struct tessera_cap){.memory_bytes = 1, .cores = 1}; /* not in use */
  CHECK_EQUAL(limits_tightest_cap(&shared).memory_bytes, 5);
  CHECK_EQUAL(limits_tightest_cap(&shared).cores, 30);
  shared.cap_count = UINT32_MAX;
  CHECK_EQUAL(limits_tightest_cap(&shared).cores, 1);
}

int main(void) {
  test_readers_see_one_write();
  test_an_unfinished_write_is_noticed_and_repaired();
  test_cores_by_policy_and_lease();
  test_stretch_ends_half_a_minute_after_the_lease();
  test_validity();
  test_the_least_of_each_is_taken_of_the_caps();
  puts("limits: ok");
}
