/* SPDX-License-Identifier: Apache-2.0
 *
 * The usage region without CUDA: exact between threads and processes, whoever dies. */
#include "region.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "atomics.h"
#include "check.h"
#include "clock.h"

#define LIMIT 1000000u

static char path[] = "/tmp/tessera-usage-XXXXXX";

static void make_file(void) {
  static struct tessera_usage usage;
  int file = mkstemp(path);
  usage.magic = TESSERA_USAGE_MAGIC;
  usage.version = TESSERA_ABI_VERSION;
  usage.size = sizeof usage;
  usage.slots = TESSERA_SLOTS;
  CHECK(write(file, &usage, sizeof usage) == sizeof usage);
  close(file);
}

static struct region opened(void) {
  struct region region;
  memset(&region, 0, sizeof region);
  region.file = -1;
  CHECK_EQUAL(region_open(&region, path), 0);
  return region;
}

/* Runs in a process of its own; its exit status must be 0. */
static pid_t start(void (*body)(struct region *)) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  struct region region = opened();
  body(&region);
  _exit(0);
}

static void finish(pid_t pid) {
  int status;
  CHECK(waitpid(pid, &status, 0) == pid);
  CHECK_EQUAL(status, 0);
}

static void test_the_limit_is_exact(struct region *region) {
  CHECK(region_reserve(region, LIMIT - 1, LIMIT));
  CHECK(!region_reserve(region, 2, LIMIT));
  CHECK(region_reserve(region, 1, LIMIT));
  CHECK(!region_reserve(region, 1, LIMIT));
  CHECK(!region_reserve(region, UINT64_MAX, LIMIT));
  CHECK_EQUAL(region_used(region), LIMIT);
  CHECK_EQUAL(region_slot(region)->refused, 3);
  region_release(region, LIMIT);
  CHECK_EQUAL(region_used(region), 0);
  CHECK_EQUAL(region->usage->peak_memory_bytes, LIMIT);
}

static void test_a_cap_is_over_the_processes_of_a_container(struct region *region) {
  uint64_t total = 0;
  region->container = 7;
  store_relaxed(&region_slot(region)->container, 7u);
  CHECK(region_reserve_part(region, REGION_CONTEXTS, 300, LIMIT, 1000));
  CHECK(region_reserve_part(region, REGION_MODULES, 200, LIMIT, 1000));
  CHECK(!region_reserve_part(region, REGION_MEMORY, 501, LIMIT, 1000));
  CHECK(region_reserve_part(region, REGION_MEMORY, 500, LIMIT, 1000));
  CHECK_EQUAL(region_used_by_container(region), 1000);
  /* Another container's part counts towards the limit alone. */
  store_relaxed(&region_slot(region)->container, 8u);
  CHECK_EQUAL(region_used_by_container(region), 0);
  CHECK(region_reserve_part(region, REGION_MEMORY, 1000, LIMIT, 1000));
  CHECK(!region_reserve_part(region, REGION_MEMORY, 1, 2000, 1000));
  CHECK_EQUAL(region_used(region), 2000);
  store_relaxed(&region_slot(region)->container, 0u);
  region->container = 0;
  region_release_part(region, REGION_CONTEXTS, 300);
  region_release_part(region, REGION_MODULES, 200);
  region_release_part(region, REGION_MEMORY, 1500);
  for (int part = 0; part < REGION_PARTS; part++) total += atomic_load(&region->held[part]);
  CHECK_EQUAL(total, 0);
  CHECK_EQUAL(region_used(region), 0);
}

/* What "the driver" holds: shared by all processes, changed between reserve and release. */
static uint64_t *truth;

static struct region *racing;
static int racing_rounds;
static void *race(void *argument) {
  for (int i = 0; i < racing_rounds; i++) {
    if (!region_reserve(racing, 300000, LIMIT)) continue;
    CHECK(__atomic_add_fetch(truth, 300000, __ATOMIC_SEQ_CST) <= LIMIT);
    CHECK(__atomic_sub_fetch(truth, 300000, __ATOMIC_SEQ_CST) <= LIMIT);
    region_release(racing, 300000);
  }
  return argument;
}

static void race_in_threads(struct region *region) {
  pthread_t threads[4];
  racing = region;
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, race, NULL) == 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

static void race_in_processes(struct region *region, int rounds) {
  pid_t pids[4];
  racing_rounds = rounds;
  for (int i = 0; i < 4; i++) pids[i] = start(race_in_threads);
  for (int i = 0; i < 4; i++) finish(pids[i]);
  CHECK_EQUAL(region_used(region), 0);
  CHECK_EQUAL(*truth, 0);
  CHECK(region->usage->peak_memory_bytes <= LIMIT);
}

static void test_races_end_at_zero(struct region *region) { race_in_processes(region, 3000); }

/* The first calls of a process's threads come together, while others come and go. */
static void test_races_while_registering(struct region *region) {
  for (int i = 0; i < 40; i++) race_in_processes(region, 20);
}

static void hold_all(struct region *region) {
  CHECK(region_reserve(region, LIMIT, LIMIT));
  for (;;) pause();
}

static void wait_for_memory(const struct region *region, uint64_t bytes) {
  for (int i = 0; i < 5000 && load_acquire(&region->usage->memory_bytes) != bytes; i++) usleep(1000);
  CHECK_EQUAL(load_acquire(&region->usage->memory_bytes), bytes);
}

static void test_the_memory_of_the_dead_is_back_at_once(struct region *region) {
  pid_t pid = start(hold_all);
  wait_for_memory(region, LIMIT);
  CHECK(!region_reserve(region, 1, LIMIT));
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  CHECK(region_reserve(region, LIMIT, LIMIT));
  region_release(region, LIMIT);
}

static void die_with_the_lock(struct region *region) {
  CHECK(region_reserve(region, 1000, LIMIT));
  __atomic_store_n(&region->usage->lock, region->owner, __ATOMIC_SEQ_CST);
  raise(SIGKILL);
}

static void test_a_dead_owners_lock_is_taken_over(struct region *region) {
  for (int i = 0; i < 3; i++) {
    pid_t pid = start(die_with_the_lock);
    waitpid(pid, NULL, 0);
    CHECK(load_acquire(&region->usage->lock) != 0);
    uint64_t before = clock_now();
    CHECK(region_reserve(region, LIMIT, LIMIT));
    CHECK(clock_now() - before < 100000000u);
    region_release(region, LIMIT);
  }
}

static void reserve_once(struct region *region) {
  CHECK(region_reserve(region, 1, LIMIT));
  region_release(region, 1);
}

static void die_while_registering(struct region *region) {
  CHECK(region_register(region));
  store_relaxed(&region_slot(region)->state, (uint32_t)TESSERA_SLOT_FREE);
  __atomic_store_n(&region->usage->lock, region->owner, __ATOMIC_SEQ_CST);
  raise(SIGKILL);
}

static void test_a_newcomer_in_the_dead_owners_slot(void) {
  /* Nobody else lives: the newcomer gets the very slot whose number is in the lock. */
  pid_t pid = start(die_while_registering);
  waitpid(pid, NULL, 0);
  finish(start(reserve_once));
  pid = start(die_with_the_lock);
  waitpid(pid, NULL, 0);
  finish(start(reserve_once));
}

/* All slots look used, since their owners are dead: each is somebody's again, and what they held is not
   counted. */
static void test_the_slots_of_the_dead_are_taken_where_there_are_no_others(void) {
  struct region region = opened();
  struct tessera_usage *usage = region.usage;
  for (uint32_t i = 0; i < TESSERA_SLOTS; i++)
    usage->process[i] = (struct tessera_process){.state = TESSERA_SLOT_USED, .memory_bytes = 10};
  usage->slots_high = TESSERA_SLOTS;
  usage->memory_bytes = TESSERA_SLOTS * 10;
  usage->swept_ns = clock_now(); /* somebody has just looked */
  usage->swept_ns = clock_now() + 1000000000u; /* as if somebody had just looked for the dead */
  CHECK(region_register(&region));
  usage->swept_ns = 0;
  CHECK_EQUAL(usage->memory_bytes, (TESSERA_SLOTS - 1) * 10);
  CHECK(region_reserve(&region, LIMIT, LIMIT));
  CHECK_EQUAL(usage->memory_bytes, LIMIT);
  CHECK_EQUAL(usage->slots_high, 1); /* nobody looks at slots any more that nobody uses */
  region_release(&region, LIMIT);
  close(region.file);
  munmap(usage, sizeof *usage);
}

/* As where a container is frozen: who needs the lock waits, and goes on when the holder does, or is dead. */
static void stop_with_the_lock(struct region *region) {
  CHECK(region_reserve(region, 1000, LIMIT));
  __atomic_store_n(&region->usage->lock, region->owner, __ATOMIC_SEQ_CST);
  raise(SIGSTOP);
  __atomic_store_n(&region->usage->lock, 0u, __ATOMIC_SEQ_CST);
}

static void test_who_is_stopped_with_the_lock(struct region *region, int how_it_ends) {
  int status;
  pid_t holder = start(stop_with_the_lock);
  CHECK(waitpid(holder, &status, WUNTRACED) == holder && WIFSTOPPED(status));
  pid_t other = start(reserve_once);
  usleep(20000);
  CHECK_EQUAL(waitpid(other, &status, WNOHANG), 0); /* he is alive: nothing is taken from him */
  kill(holder, how_it_ends);
  finish(other);
  CHECK(waitpid(holder, &status, 0) == holder);
  CHECK(how_it_ends == SIGCONT ? WIFEXITED(status) : WIFSIGNALED(status));
  CHECK(region_reserve(region, LIMIT, LIMIT));
  region_release(region, LIMIT);
}

static void test_a_slot_lost_with_its_descriptor_is_taken_again(struct region *region) {
  CHECK(region_reserve(region, 1000, LIMIT));
  close(region->file); /* as a program does that closes everything */
  pid_t pid = start(reserve_once);
  finish(pid); /* has swept: our slot looked dead */
  CHECK(region_reserve(region, 500, LIMIT));
  CHECK_EQUAL(region_used(region), 1500);
  region_release(region, 1500);
  CHECK_EQUAL(region_used(region), 0);
}

static void test_a_foreign_file_under_our_number_is_not_touched(struct region *region) {
  int number = region->file, other = open("/dev/null", O_RDWR);
  close(number);
  CHECK_EQUAL(dup2(other, number), number);
  CHECK(region_reserve(region, 10, LIMIT));
  pid_t pid = start(reserve_once);
  finish(pid);
  CHECK(!region_reserve(region, LIMIT, LIMIT)); /* sweeps, so looks at the file */
  CHECK(region->file != number);
  CHECK_EQUAL(fcntl(number, F_GETFD) >= 0, 1);
  region_release(region, 10);
  close(number);
  close(other);
}

static void test_a_forked_child_is_a_process_of_its_own(struct region *region) {
  CHECK(region_reserve(region, 400, LIMIT));
  pid_t pid = fork();
  if (pid == 0) {
    region_after_fork(region);
    CHECK(region_reserve(region, 100, LIMIT));
    CHECK_EQUAL(region_used(region), 500);
    _exit(0);
  }
  finish(pid);
  CHECK(!region_reserve(region, LIMIT, LIMIT));
  CHECK_EQUAL(region_used(region), 400);
  region_release(region, 400);
}

static void test_bad_files(void) {
  struct region region;
  char bad[] = "/tmp/tessera-bad-XXXXXX";
  CHECK_EQUAL(region_open(&region, "/nonexistent/usage"), ENOENT);
  int file = mkstemp(bad);
  CHECK_EQUAL(region_open(&region, bad), EINVAL);
  CHECK(ftruncate(file, sizeof(struct tessera_usage)) == 0);
  CHECK_EQUAL(region_open(&region, bad), EINVAL);
  close(file);
  unlink(bad);
}

int main(void) {
  make_file();
  truth = mmap(NULL, sizeof *truth, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(truth != MAP_FAILED);
  test_bad_files();
  test_a_newcomer_in_the_dead_owners_slot();
  test_the_slots_of_the_dead_are_taken_where_there_are_no_others();
  struct region region = opened();
  test_the_limit_is_exact(&region);
  test_a_cap_is_over_the_processes_of_a_container(&region);
  test_races_end_at_zero(&region);
  test_races_while_registering(&region);
  test_the_memory_of_the_dead_is_back_at_once(&region);
  test_a_dead_owners_lock_is_taken_over(&region);
  test_who_is_stopped_with_the_lock(&region, SIGCONT);
  test_who_is_stopped_with_the_lock(&region, SIGKILL);
  test_a_slot_lost_with_its_descriptor_is_taken_again(&region);
  test_a_foreign_file_under_our_number_is_not_touched(&region);
  test_a_forked_child_is_a_process_of_its_own(&region);
  unlink(path);
  puts("region: ok");
}
