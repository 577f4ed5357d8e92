/* SPDX-License-Identifier: Apache-2.0
 *
 * Atomic access to the plain fields of the shared structs (tessera_abi.h is read by cffi, which knows no
 * _Atomic). */
#ifndef TESSERA_ATOMICS_H
#define TESSERA_ATOMICS_H

#include <stdint.h>

#define load_relaxed(field) __atomic_load_n((field), __ATOMIC_RELAXED)
#define load_acquire(field) __atomic_load_n((field), __ATOMIC_ACQUIRE)
#define store_relaxed(field, value) __atomic_store_n((field), (value), __ATOMIC_RELAXED)
#define store_release(field, value) __atomic_store_n((field), (value), __ATOMIC_RELEASE)
#define add_relaxed(field, value) ((void)__atomic_fetch_add((field), (value), __ATOMIC_RELAXED))
#define sub_relaxed(field, value) ((void)__atomic_fetch_sub((field), (value), __ATOMIC_RELAXED))

/* `expected` is a pointer and gets what was seen. */
#define swap_if(field, expected, value) \
  __atomic_compare_exchange_n((field), (expected), (value), 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

#if defined(__x86_64__)
#define pause_processor() __builtin_ia32_pause()
#else
#define pause_processor() __asm__ __volatile__("yield")
#endif

/* Swaps 16 bytes, aligned, if they are what was expected; without a call of libatomic, which may be missing
   where this runs, and may lock. */
static inline _Bool swap_both_if(uint64_t *fields, uint64_t first, uint64_t second, uint64_t new_first,
                                 uint64_t new_second) {
#if defined(__x86_64__)
  _Bool swapped;
  /* NOLINTNEXTLINE(portability-no-assembler): the compiler would call libatomic */
  __asm__ __volatile__("lock cmpxchg16b %1"
                       : "=@ccz"(swapped), "+m"(*(unsigned __int128 *)(void *)fields), "+a"(first),
                         "+d"(second)
                       : "b"(new_first), "c"(new_second)
                       : "memory");
  return swapped;
#elif defined(__aarch64__)
  uint64_t seen_first, seen_second;
  uint32_t failed;
  __asm__ __volatile__(
      "1: ldaxp %0, %1, %3\n"
      "   cmp %0, %4\n"
      "   ccmp %1, %5, #0, eq\n"
      "   cset %w2, ne\n"
      "   b.ne 2f\n"
      "   stlxp %w2, %6, %7, %3\n"
      "   cbnz %w2, 1b\n"
      "2:"
      : "=&r"(seen_first), "=&r"(seen_second), "=&r"(failed), "+Q"(*(unsigned __int128 *)(void *)fields)
      : "r"(first), "r"(second), "r"(new_first), "r"(new_second)
      : "cc", "memory");
  return failed == 0;
#else
#error "no compare-and-swap of 16 bytes known for this machine"
#endif
}

#endif
