// SPDX-License-Identifier: MIT
// sched.h: sets of processors (posix.c). Windows numbers the processors of a process's group from 0 to 63.
#pragma once

#include_next <sched.h>

#include <stddef.h>
#include <stdint.h>

#define CPU_SETSIZE 64
typedef struct {
    uint64_t bits;
} cpu_set_t;

#define CPU_ZERO(set) ((void) ((set)->bits = 0))
#define CPU_SET(i, set) ((void) ((set)->bits |= (uint64_t) 1 << (i)))
#define CPU_ISSET(i, set) (((set)->bits >> (i) &1) != 0)
#define CPU_COUNT(set) __builtin_popcountll((set)->bits)
// The sizes of sets are always sizeof(cpu_set_t).
#define CPU_SET_S(i, size, set) CPU_SET(i, set)
#define CPU_ISSET_S(i, size, set) CPU_ISSET(i, set)
#define CPU_COUNT_S(size, set) CPU_COUNT(set)
#ifndef SCHED_BATCH
#    define SCHED_BATCH SCHED_OTHER
#endif

#define sched_getaffinity posix_getaffinity
#define pthread_getaffinity_np(thread, size, set) posix_thread_affinity(NULL, set)
#define pthread_setaffinity_np(thread, size, set) posix_thread_affinity(set, NULL) // only for pthread_self()
#define sched_getcpu posix_getcpu

int posix_getaffinity(int pid, size_t size, cpu_set_t *set);         // of the process
int posix_thread_affinity(const cpu_set_t *set, cpu_set_t *old_set); // of the calling thread; each may be NULL
int posix_getcpu(void);
