/* SPDX-License-Identifier: Apache-2.0
 *
 * Atomic access to the plain fields of the shared structs (tessera_abi.h is read by cffi, which knows no
 * _Atomic). */
#ifndef TESSERA_ATOMICS_H
#define TESSERA_ATOMICS_H

#define load_relaxed(field) __atomic_load_n((field), __ATOMIC_RELAXED)
#define load_acquire(field) __atomic_load_n((field), __ATOMIC_ACQUIRE)
#define store_relaxed(field, value) __atomic_store_n((field), (value), __ATOMIC_RELAXED)
#define store_release(field, value) __atomic_store_n((field), (value), __ATOMIC_RELEASE)
#define add_relaxed(field, value) ((void)__atomic_fetch_add((field), (value), __ATOMIC_RELAXED))
#define sub_relaxed(field, value) ((void)__atomic_fetch_sub((field), (value), __ATOMIC_RELAXED))

/* `expected` is a pointer and gets what was seen. */
#define swap_if(field, expected, value) \
  __atomic_compare_exchange_n((field), (expected), (value), 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

#endif
