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
 * A reader refuses another magic or version; a larger `size` than its own is a newer minor layout whose tail
 * it ignores. Times are nanoseconds of CLOCK_MONOTONIC, one clock for the whole node.
 */
#ifndef TESSERA_ABI_H
#define TESSERA_ABI_H

#include <stdint.h>

/* cffi: begin */
#define TESSERA_LIMITS_MAGIC 0x4c535354 /* "TSSL" */
#define TESSERA_USAGE_MAGIC 0x55535354  /* "TSSU" */
#define TESSERA_LIMITS_VERSION 1
#define TESSERA_USAGE_VERSION 2 /* 1 was under a lock: a file is never used both ways */

/* The least that a file of its version has: what was added since is behind it. */
#define TESSERA_LIMITS_SIZE_0 1424
#define TESSERA_USAGE_SIZE_0 524544

#define TESSERA_UUID_SIZE 48      /* "GPU-" or "MIG-" and 36 characters, NUL padded */
#define TESSERA_CLAIM_SIZE 40     /* a claim's UID, 36 characters, NUL padded */
#define TESSERA_CONTAINER_SIZE 64 /* a container's name, at most 63 characters, NUL padded */
#define TESSERA_CAPS 16
#define TESSERA_SLOTS 4096
#define TESSERA_SPANS 512

/* enum of `policy` */
#define TESSERA_POLICY_DEFAULT 0 /* effective_cores while the lease lasts, else guaranteed_cores */
#define TESSERA_POLICY_FORCE 1   /* guaranteed_cores is enforced always */
#define TESSERA_POLICY_DISABLE 2 /* compute is not throttled */

/* bits of `flags` */
#define TESSERA_FLAG_SPILL 1 /* may go on in managed memory where the card is full (memoryScaling > 1) */

/* Memory is counted in granules of so many bytes. */
#define TESSERA_GRANULE 512

/* What stands where in `last_operation` and `sums`, see struct tessera_usage: bits from the lowest. */
#define TESSERA_NUMBER_SHIFT 20
#define TESSERA_SLOT_SHIFT 8
#define TESSERA_TOTAL_SHIFT 28

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
  /* From here on missing in files of TESSERA_LIMITS_SIZE_0 bytes: read as 0. What the agent lends ends at
     lease_until_ns, so that nothing outlives an agent that is gone; what it has measured, half a minute
     later: until then another has started. */
  uint64_t lease_until_ns;
  uint32_t stretch; /* thousandths: how much longer kernels take than alone, since other grants' run too */
  uint32_t stretch_unlent; /* what it comes to when nobody has more than is guaranteed: after the lease */
};

/* `bytes` and `entered` are changed together, by a compare-and-swap of 16 bytes. While the slot's own
   operation is the last one, `bytes` is what it held before, and the header says what it holds. */
struct tessera_process {
  uint32_t pid;     /* in the process's own PID namespace; for people, never for liveness */
  uint32_t waiting; /* threads held back by the compute limit right now */
  /* When the slot was taken, and so whose it is; changed by compare-and-swap alone. 0: it is nobody's, and
     what stands in its counters means nothing. */
  uint64_t start_ns;
  uint64_t bytes;          /* held on the card */
  uint64_t entered;        /* the number of the operation that `bytes` comes from */
  uint64_t context_bytes;  /* of these, contexts; a moment late */
  uint64_t module_bytes;   /* of these, modules; a moment late */
  uint64_t container;      /* which container of the grant the process is in, where caps tell them apart */
  uint64_t last_launch_ns; /* when it last launched */
  uint64_t launches;       /* kernels launched */
  uint64_t busy_ns;        /* device time charged */
  uint64_t waited_ns;      /* time held back by the compute limit */
  uint64_t refused;        /* allocations refused by the memory limit */
  uint64_t timed;          /* launches being timed right now */
  uint64_t resident_ns;    /* since when it has long kernels on the card; 0: it has none */
  uint64_t resident_until; /* when they should have ended, as far as is known */
  uint64_t short_ns;       /* of busy_ns, for kernels that no span tells of */
};

/* From when to when a process had kernels on the card: those from 0.2 ms on, each measured. Spans of one
   process don't overlap. In no particular order; length 0: none, or being written. */
struct tessera_span {
  uint64_t start_ns;
  uint32_t length_us;
  uint32_t slot;
};

struct tessera_usage {
  uint32_t magic;
  uint32_t version;
  uint32_t size;  /* bytes of this struct, as the writer knew it */
  uint32_t slots; /* TESSERA_SLOTS */
  /* Memory, without a lock: `last_operation` and `sums` are the one thing that an operation changes, by a
     compare-and-swap of 16 bytes. From the highest bits: the operation's number (44), which goes up by one;
     its slot (12); the upper 8 bits of what that slot holds now, in granules; what all hold together (36);
     the lower 28 bits of what the slot holds. Whoever comes next with another slot first enters that in the
     slot named here, if nobody has: so at no moment is anything half done that only its author could
     finish. */
  uint64_t last_operation;
  uint64_t sums;
  uint64_t peak_memory_bytes; /* high-water mark of the sum, that before the last operation included */
  uint64_t swept_ns;          /* when dead processes' slots were last looked for */
  uint32_t slots_high;        /* slots from this one on are not used; changed together with `claims` */
  uint32_t claims;            /* slots taken so far; wraps around */
  uint64_t context_bytes; /* what the last context took of the card, for the next one; 0: not known yet */
  /* Compute, on a cache line of its own; without a lock, so nobody's end leaves anything half done. Device
     time that was taken is repaid, at time_rate percent of real time, at time_ready_ns: launches wait. */
  uint64_t time_ready_ns;
  uint32_t time_rate;
  uint32_t timings;   /* launches timed so far, by all processes; wraps around */
  uint32_t span_next; /* spans written so far; wraps around */
  uint32_t reserved_half;
  /* The same as time_ready_ns for what a container may use of the grant, at its cap's cores, in the order of
     the caps; the last one: of containers that don't know which they are. */
  uint64_t cap_ready_ns[TESSERA_CAPS + 1];
  uint8_t cap_rate[TESSERA_CAPS + 1]; /* percent of real time at which each of them is repaid */
  uint8_t reserved_bytes[7];
  uint64_t context_figure; /* what first contexts took (context_figure.h), changed as one word */
  struct tessera_process process[TESSERA_SLOTS];
  /* Missing in files of TESSERA_USAGE_SIZE_0 bytes. */
  struct tessera_span spans[TESSERA_SPANS];
};
/* cffi: end */

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(struct tessera_cap) == 80, "layout of tessera_cap");
_Static_assert(sizeof(struct tessera_limits) == TESSERA_LIMITS_SIZE_0 + 16, "layout of tessera_limits");
_Static_assert(sizeof(struct tessera_process) == 128, "layout of tessera_process");
_Static_assert(sizeof(struct tessera_span) == 16, "layout of tessera_span");
_Static_assert(sizeof(struct tessera_usage) == TESSERA_USAGE_SIZE_0 + 512 * 16, "layout of tessera_usage");
#endif

#endif
