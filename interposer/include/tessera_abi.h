/* SPDX-License-Identifier: Apache-2.0
 *
 * What the node agent and the library in the container owe each other: two files per grant, both mapped.
 *
 *   limits  written by the agent (root, 0444), read by the library. Seqlock: `sequence` is odd while it
 *           changes.
 *   usage   header written once by the agent, the rest by the library's processes (0666). One slot per
 *           process; a process owns slot i while it holds the POSIX record lock on byte i of the file (fcntl
 *           F_SETLK), so the kernel ends the ownership with the process, in every PID namespace, and F_GETLK
 *           names the owner's pid in the asker's own namespace.
 *
 * Fixed width, little endian, no implicit padding (asserted below); cffi reads what is between its marks.
 * A reader refuses another magic or a larger version; a larger `size` than its own is a newer minor layout
 * whose tail it ignores. Times are nanoseconds of CLOCK_MONOTONIC, one clock for the whole node.
 */
#ifndef TESSERA_ABI_H
#define TESSERA_ABI_H

#include <stdint.h>

/* cffi: begin */
#define TESSERA_LIMITS_MAGIC 0x4c535354 /* "TSSL" */
#define TESSERA_USAGE_MAGIC 0x55535354  /* "TSSU" */
#define TESSERA_ABI_VERSION 1

#define TESSERA_UUID_SIZE 48      /* "GPU-" or "MIG-" and 36 characters, NUL padded */
#define TESSERA_CLAIM_SIZE 40     /* a claim's UID, 36 characters, NUL padded */
#define TESSERA_CONTAINER_SIZE 64 /* a container's name, at most 63 characters, NUL padded */
#define TESSERA_CAPS 16
#define TESSERA_SLOTS 4096

/* enum of `policy` */
#define TESSERA_POLICY_DEFAULT 0 /* effective_cores is enforced; the agent lends what is idle */
#define TESSERA_POLICY_FORCE 1   /* guaranteed_cores is enforced always */
#define TESSERA_POLICY_DISABLE 2 /* compute is not throttled */

/* bits of `flags` */
#define TESSERA_FLAG_SPILL 1 /* may go on in managed memory where the card is full (memoryScaling > 1) */

/* enum of a slot's `state` */
#define TESSERA_SLOT_FREE 0
#define TESSERA_SLOT_USED 1

/* A container's own, smaller limits inside a grant that several containers share. */
struct tessera_cap {
  char container[TESSERA_CONTAINER_SIZE];
  uint64_t memory_bytes; /* 0: the grant's */
  uint32_t cores;        /* percent; 0: the grant's */
  uint32_t reserved;
};

struct tessera_limits {
  uint32_t magic;
  uint32_t version;
  uint32_t size;     /* bytes of this struct, as the writer knew it */
  uint32_t sequence; /* odd: being written */
  char uuid[TESSERA_UUID_SIZE];
  char claim[TESSERA_CLAIM_SIZE];
  uint64_t memory_bytes;      /* hard cap of the grant on this card; never 0 */
  uint64_t card_memory_bytes; /* the card's own memory */
  uint32_t guaranteed_cores;  /* percent of the card; 0: no cap, what is left over */
  uint32_t effective_cores;   /* percent in force now; 0: no cap */
  uint32_t policy;
  uint32_t priority; /* 0 before 1 */
  uint32_t flags;
  uint32_t cap_count;
  struct tessera_cap caps[TESSERA_CAPS];
};

struct tessera_process {
  uint32_t state;
  uint32_t pid;            /* in the process's own PID namespace; for people, never for liveness */
  uint64_t start_ns;       /* when the slot was taken */
  uint64_t memory_bytes;   /* held on the card: allocations */
  uint64_t context_bytes;  /* held on the card: contexts */
  uint64_t module_bytes;   /* held on the card: modules */
  uint64_t launches;       /* kernels launched */
  uint64_t busy_ns;        /* device time charged */
  uint64_t waited_ns;      /* time held back by the compute limit */
  uint64_t last_launch_ns; /* when it last launched */
  uint64_t refused;        /* allocations refused by the memory limit */
  uint64_t timed;          /* launches being timed right now */
  uint64_t reserved[5];
};

struct tessera_usage {
  uint32_t magic;
  uint32_t version;
  uint32_t size;  /* bytes of this struct, as the writer knew it */
  uint32_t slots; /* TESSERA_SLOTS */
  /* Memory. `lock` is 0, or in its low half 1 + the slot whose process changes the totals, in its high half a
     tag of that process. Its end frees it: who waits takes it over and adds up the living slots. */
  uint32_t lock;
  uint32_t waiters;           /* who sleeps on `lock`; a hint, the dead count until the next sweep */
  uint64_t memory_bytes;      /* sum over the used slots of memory, context and module bytes */
  uint64_t peak_memory_bytes; /* high-water mark of memory_bytes */
  uint64_t swept_ns;          /* when dead processes' slots were last looked for */
  uint32_t slots_high;        /* slots from this one on were never used */
  uint32_t reserved_word;
  uint64_t reserved_line;
  /* Compute, on a cache line of its own; without a lock, so nobody's end leaves anything half done. Device
     time that was taken is repaid, at time_rate percent of real time, at time_ready_ns: launches wait. */
  uint64_t time_ready_ns;
  uint32_t time_rate;
  uint32_t timings; /* launches timed so far, by all processes; wraps around */
  uint64_t reserved[22];
  struct tessera_process process[TESSERA_SLOTS];
};
/* cffi: end */

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(struct tessera_cap) == 80, "layout of tessera_cap");
_Static_assert(sizeof(struct tessera_limits) == 16 + 48 + 40 + 16 + 24 + 16 * 80, "layout of tessera_limits");
_Static_assert(sizeof(struct tessera_process) == 128, "layout of tessera_process");
_Static_assert(sizeof(struct tessera_usage) == 256 + 4096 * 128, "layout of tessera_usage");
#endif

#endif
