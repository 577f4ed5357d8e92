/* SPDX-License-Identifier: Apache-2.0
 *
 * Many processes of one grant, and what becomes of the others when some are killed, stopped or forked. The
 * judge is a CUDA program itself; the others are the same program, started anew.
 *
 *   storms kill N    N processes die at any point of what they do; in between all memory is asked for at once
 *   storms stop N    N times one of them is stopped for a while, at any point, and goes on or is killed
 *   storms crowd N   N processes live together and hold a block each; then half of them are killed
 *   storms fork N    N forks of a program whose threads allocate and launch
 *
 * Prints JSON. Ends with 3 where a call answers what it never may. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int result;
typedef uint64_t pointer;

extern result cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern result cuCtxCreate_v2(void **, unsigned, int), cuCtxDestroy_v2(void *);
extern result cuMemAlloc_v2(pointer *, size_t), cuMemFree_v2(pointer), cuMemGetInfo_v2(size_t *, size_t *);
extern result cuMemAllocAsync(pointer *, size_t, void *), cuMemFreeAsync(pointer, void *);
extern result cuMemCreate(pointer *, size_t, const void *, uint64_t), cuMemRelease(pointer);
extern result cuModuleLoadData(void **, const void *), cuModuleUnload(void *);
extern result cuModuleGetFunction(void **, void *, const char *), cuCtxSynchronize(void);
extern result cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             void *, void **, void **);

#define OUT_OF_MEMORY 2
#define NOT_INITIALIZED 3
#define VICTIMS 4
#define TOGETHER 8
#define BLOCK 65536u

static const char image[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin_ns(.param .u64 nanoseconds)\n{\n ret;\n}\n";
static void *context;
static char **words;

static void must(const char *what, int code) {
  if (code == 0) return;
  fprintf(stderr, "%s: %d\n", what, code);
  exit(3);
}

/* Done, or refused; nothing else may come. */
static int allowed(const char *what, int code) {
  if (code != OUT_OF_MEMORY) must(what, code);
  return code == 0;
}

static void use_device(void) {
  must("cuInit", cuInit(0));
  must("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, 0));
  must("cuCtxSetCurrent", cuCtxSetCurrent(context));
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* --- what is done to the card ------------------------------------------------------------------------- */

static void one_launch(void) {
  void *module, *function;
  uint64_t nanoseconds = 1000;
  void *parameters[] = {&nanoseconds};
  if (!allowed("cuModuleLoadData", cuModuleLoadData(&module, image))) return;
  must("cuModuleGetFunction", cuModuleGetFunction(&function, module, "spin_ns"));
  must("cuLaunchKernel", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
  must("cuModuleUnload", cuModuleUnload(module));
}

static void one_context(void) {
  void *second;
  pointer address;
  if (!allowed("cuCtxCreate", cuCtxCreate_v2(&second, 0, 0))) return;
  (void)allowed("cuMemAlloc", cuMemAlloc_v2(&address, BLOCK));
  must("cuCtxDestroy", cuCtxDestroy_v2(second));
  must("cuCtxSetCurrent", cuCtxSetCurrent(context));
}

static void one_step(unsigned *state) {
  static const int properties[8] = {1, 0, 1, 0};
  pointer address;
  size_t bytes = (size_t)(rand_r(state) % 4096 + 1) * 4096;
  switch (rand_r(state) % 8) {
    case 0:
      one_launch();
      break;
    case 1:
      one_context();
      break;
    case 2:
      if (allowed("cuMemCreate", cuMemCreate(&address, 2u << 20, properties, 0)))
        must("cuMemRelease", cuMemRelease(address));
      break;
    case 3:
      if (allowed("cuMemAllocAsync", cuMemAllocAsync(&address, bytes, NULL)))
        must("cuMemFreeAsync", cuMemFreeAsync(address, NULL));
      break;
    default:
      if (!allowed("cuMemAlloc", cuMemAlloc_v2(&address, bytes))) break;
      if (rand_r(state) % 4 == 0) usleep(200); /* with the memory in hand */
      must("cuMemFree", cuMemFree_v2(address));
  }
}

static void *victim_thread(void *seed) {
  unsigned state = (unsigned)(uintptr_t)seed;
  must("cuCtxSetCurrent", cuCtxSetCurrent(context));
  for (;;) one_step(&state);
  return NULL;
}

/* Does nothing else, so that death finds it in the midst of that. */
static void *allocating(void *argument) {
  pointer address;
  must("cuCtxSetCurrent", cuCtxSetCurrent(context));
  for (;;)
    if (allowed("cuMemAlloc", cuMemAlloc_v2(&address, 512))) must("cuMemFree", cuMemFree_v2(address));
  return argument;
}

static void victim(void) {
  pthread_t thread;
  use_device();
  pthread_create(&thread, NULL, allocating, NULL);
  victim_thread((void *)(uintptr_t)(getpid() * 31));
}

/* --- processes ---------------------------------------------------------------------------------------- */

static pid_t start(const char *what) {
  pid_t pid;
  char *arguments[] = {words[0], (char *)(uintptr_t)what, NULL};
  int error = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ);
  if (error != 0) must("posix_spawn", error);
  return pid;
}

/* A victim that ended by itself has seen what it never may. */
static void end(pid_t pid) {
  int status;
  kill(pid, SIGKILL);
  if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
    must("a victim's status", status);
}

static uint64_t slowest;

static int timed_allocation(pointer *address, size_t bytes) {
  uint64_t began = now();
  int code = cuMemAlloc_v2(address, bytes);
  uint64_t took = now() - began;
  if (took > slowest) slowest = took;
  return code;
}

/* With nobody else alive, whatever the dead held is there at the first call, not a moment later. */
static void all_is_back(size_t bytes) {
  pointer address;
  must("all of the memory", timed_allocation(&address, bytes));
  must("cuMemFree", cuMemFree_v2(address));
}

static size_t all_of_it(void) {
  size_t available, total;
  must("cuMemGetInfo", cuMemGetInfo_v2(&available, &total));
  return available;
}

static void kill_storm(int kills) {
  pid_t victims[VICTIMS];
  unsigned state = 1;
  int times = 0;
  use_device();
  size_t all = all_of_it();
  for (int i = 0; i < VICTIMS; i++) victims[i] = start("victim");
  for (int killed = 0; killed < kills;) {
    pointer address;
    usleep((useconds_t)(rand_r(&state) % 8000)); /* as long as a start takes, or twice */
    int which = rand_r(&state) % VICTIMS, everybody = rand_r(&state) % 16 == 0;
    for (int i = 0; i < VICTIMS; i++) {
      if (i != which && !everybody) continue;
      end(victims[i]);
      killed++;
      victims[i] = 0;
    }
    if (allowed("cuMemAlloc", timed_allocation(&address, BLOCK))) must("cuMemFree", cuMemFree_v2(address));
    if (everybody) all_is_back(all), times++;
    for (int i = 0; i < VICTIMS; i++)
      if (victims[i] == 0) victims[i] = start("victim");
  }
  for (int i = 0; i < VICTIMS; i++) end(victims[i]);
  all_is_back(all);
  printf("{\"whole\": %d, \"all\": %zu, \"slowest_ms\": %.3f}\n", times + 1, all, (double)slowest / 1e6);
}

/* --- who is stopped ----------------------------------------------------------------------------------- */

static _Atomic uint64_t steps;

static void *working(void *argument) {
  unsigned state = 7;
  must("cuCtxSetCurrent", cuCtxSetCurrent(context));
  for (;;) {
    one_step(&state);
    steps++;
  }
  return argument;
}

/* Whoever waited for the stopped goes on as soon as he does, or is dead. */
static void others_go_on(void) {
  uint64_t before = steps, began = now();
  while (steps < before + 2) {
    usleep(200);
    if (now() - began > 60000000000u) must("nobody goes on", -1);
  }
}

static void stop_storm(int stops) {
  pid_t victims[VICTIMS];
  pthread_t thread;
  unsigned state = 2;
  use_device();
  size_t all = all_of_it();
  pthread_create(&thread, NULL, working, NULL);
  for (int i = 0; i < VICTIMS; i++) victims[i] = start("victim");
  for (int i = 0; i < stops; i++) {
    int which = rand_r(&state) % VICTIMS, status;
    usleep((useconds_t)(rand_r(&state) % 8000));
    kill(victims[which], SIGSTOP);
    if (waitpid(victims[which], &status, WUNTRACED) != victims[which] || !WIFSTOPPED(status))
      must("a victim's status", status);
    usleep(2000);
    if (i % 4 == 0) {
      end(victims[which]); /* without having gone on */
      victims[which] = start("victim");
    } else {
      kill(victims[which], SIGCONT);
    }
    others_go_on();
  }
  for (int i = 0; i < VICTIMS; i++) end(victims[i]);
  printf("{\"stops\": %d, \"all\": %zu}\n", stops, all);
  fflush(stdout);
  _exit(0);
}

/* --- a crowd ------------------------------------------------------------------------------------------ */

static int ready[2], go[2];

static void member(void) {
  pointer address;
  char byte;
  close(go[1]);
  must("cuInit", cuInit(0));
  int code = cuDevicePrimaryCtxRetain(&context, 0);
  if (code == 0) code = cuCtxSetCurrent(context);
  if (code == 0) code = cuMemAlloc_v2(&address, BLOCK);
  int granted = allowed("a member's memory", code);
  if (write(ready[1], granted ? "y" : "n", 1) != 1) must("write", errno);
  if (!granted) return;
  while (read(go[0], &byte, 1) > 0) continue;
}

/* The pipes have numbers that the members know. */
static void make_pipes(void) {
  if (pipe(ready) != 0 || pipe(go) != 0) must("pipe", errno);
  for (int i = 0; i < 2; i++) {
    dup2(ready[i], 100 + i), close(ready[i]), ready[i] = 100 + i;
    dup2(go[i], 102 + i), close(go[i]), go[i] = 102 + i;
  }
}

static void crowd(int count) {
  pid_t *pids = calloc((size_t)count, sizeof *pids);
  char answer;
  int granted = 0;
  make_pipes();
  use_device();
  size_t all = all_of_it();
  for (int i = 0; i < count + TOGETHER; i++) {
    if (i < count) pids[i] = start("member");
    if (i < TOGETHER) continue; /* so many start at the same time */
    if (read(ready[0], &answer, 1) != 1) must("read", errno);
    granted += answer == 'y';
  }
  size_t left = all_of_it();
  if (granted == count)
    for (int i = 0; i < count / 2; i++) end(pids[i]);
  if (granted == count) all_is_back(left + (size_t)(count / 2) * BLOCK);
  close(go[1]);
  for (int i = granted == count ? count / 2 : 0; i < count; i++) {
    int status;
    if (waitpid(pids[i], &status, 0) != pids[i]) must("waitpid", errno);
    must("a member's status", status);
  }
  all_is_back(all);
  printf("{\"granted\": %d, \"held\": %zu, \"slowest_ms\": %.3f}\n", granted, all - left,
         (double)slowest / 1e6);
}

/* --- forks -------------------------------------------------------------------------------------------- */

/* The child of a program that uses CUDA can't use it; it can leave, run another program, or fork again. */
static void forked(int number) {
  pointer address;
  if (number % 4 == 1) execl("/bin/true", "true", (char *)NULL);
  if (number % 4 == 2) _exit(cuMemAlloc_v2(&address, 512) == NOT_INITIALIZED ? 0 : 9);
  if (number % 4 == 3) {
    for (int file = 3; file < 1024; file++) close(file); /* as a daemon does */
    if (fork() == 0) _exit(0);
  }
  _exit(0);
}

static void fork_storm(int forks) {
  pthread_t thread;
  int status;
  use_device();
  size_t all = all_of_it();
  pthread_create(&thread, NULL, working, NULL);
  for (int i = 0; i < forks; i++) {
    pid_t pid = fork();
    if (pid == 0) forked(i);
    if (waitpid(pid, &status, 0) != pid) must("waitpid", errno);
    must("a child's status", status);
    others_go_on();
  }
  pid_t peer = start("member-alone"); /* comes, looks for the dead, and finds none */
  waitpid(peer, &status, 0);
  must("a peer's status", status);
  others_go_on();
  printf("{\"forks\": %d, \"all\": %zu}\n", forks, all);
  fflush(stdout);
  _exit(0);
}

int main(int count, char **arguments) {
  words = arguments;
  if (count < 2) return 64;
  const char *what = arguments[1];
  int number = count > 2 ? atoi(arguments[2]) : 0;
  if (count == 2) prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody outlives the judge */
  if (strcmp(what, "victim") == 0) victim();
  if (strcmp(what, "member") == 0) ready[1] = 101, go[0] = 102, go[1] = 103, member();
  if (strcmp(what, "member-alone") == 0) use_device(), all_of_it();
  if (strcmp(what, "kill") == 0) kill_storm(number);
  if (strcmp(what, "stop") == 0) stop_storm(number);
  if (strcmp(what, "crowd") == 0) crowd(number);
  if (strcmp(what, "fork") == 0) fork_storm(number);
  return 0;
}
