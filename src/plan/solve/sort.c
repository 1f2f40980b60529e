// SPDX-License-Identifier: MIT
// sort.c: a stable sort of (key, index) pairs: insertion sort for a few pairs, otherwise radix sort with O(n) time per digit. The
// caller provides the scratch memory, so the sort cannot fail.

#include "plan/solve/plan.h"

#include <string.h>

#define FEW 24

// The result's pair i was pair sort_from[i] of the input. This array exists only in the proof.
//@ ghost int32_t sort_from[FEW];

/*@ predicate pair_is_from{L1, L2}(uint64_t *key, int32_t *idx, integer to, integer from) =
        \at(key[to], L2) == \at(key[from], L1) && \at(idx[to], L2) == \at(idx[from], L1); */

// The result is sorted. Pairs with equal keys keep their order, so no two pairs of the result are the same pair of the input.
/*@ requires 0 <= n <= FEW && \valid(key + (0 .. n - 1)) && \valid(idx + (0 .. n - 1));
    requires \separated(key + (0 .. n - 1), idx + (0 .. n - 1));
    assigns key[0 .. n - 1], idx[0 .. n - 1], sort_from[0 .. n - 1];
    ensures \forall integer i; 0 <= i < n ==> 0 <= sort_from[i] < n && pair_is_from{Pre, Post}(key, idx, i, sort_from[i]);
    ensures \forall integer i, j; 0 <= i < j < n ==> key[i] < key[j] || (key[i] == key[j] && sort_from[i] < sort_from[j]); */
static void sort_few(uint64_t *key, int32_t *idx, int32_t n) {
    /*@ ghost
        /@ loop invariant 0 <= i <= n;
           loop invariant \forall integer x; 0 <= x < i ==> sort_from[x] == x;
           loop assigns i, sort_from[0 .. n - 1];
           loop variant n - i; @/
        for (int32_t i = 0; i < n; i++) {
            sort_from[i] = i;
        } */
    /*@ loop invariant 1 <= i && (i <= n || i == 1);
        loop invariant \forall integer x; i <= x < n ==> sort_from[x] == x && pair_is_from{Pre, Here}(key, idx, x, x);
        loop invariant \forall integer x; 0 <= x < i && x < n ==>
            0 <= sort_from[x] < i && pair_is_from{Pre, Here}(key, idx, x, sort_from[x]);
        loop invariant \forall integer x, y; 0 <= x < y < i && y < n ==>
            key[x] < key[y] || (key[x] == key[y] && sort_from[x] < sort_from[y]);
        loop assigns i, key[0 .. n - 1], idx[0 .. n - 1], sort_from[0 .. n - 1];
        loop variant n - i; */
    for (int32_t i = 1; i < n; i++) {
        uint64_t k = key[i];
        int32_t x = idx[i];
        int32_t j = i;
        /*@ loop invariant 0 <= j <= i;
            loop invariant \forall integer x; 0 <= x <= i && x != j ==>
                0 <= sort_from[x] < i && pair_is_from{Pre, Here}(key, idx, x, sort_from[x]);
            loop invariant \forall integer x, y; 0 <= x < y < j ==>
                key[x] < key[y] || (key[x] == key[y] && sort_from[x] < sort_from[y]);
            loop invariant \forall integer x, y; 0 <= x < j < y <= i ==>
                key[x] < key[y] || (key[x] == key[y] && sort_from[x] < sort_from[y]);
            loop invariant \forall integer x, y; j < x < y <= i ==>
                key[x] < key[y] || (key[x] == key[y] && sort_from[x] < sort_from[y]);
            loop invariant \forall integer x; j < x <= i ==> key[x] > k;
            loop assigns j, key[0 .. i], idx[0 .. i], sort_from[0 .. i];
            loop variant j; */
        for (; j > 0 && key[j - 1] > k; j--) {
            key[j] = key[j - 1];
            idx[j] = idx[j - 1];
            //@ ghost sort_from[j] = sort_from[j - 1];
            //@ assert \forall integer x; j < x <= i ==> key[j] < key[x] || (key[j] == key[x] && sort_from[j] < sort_from[x]);
        }
        //@ assert \forall integer x; 0 <= x < j ==> key[x] <= key[j - 1];
        //@ assert \forall integer x; 0 <= x < j ==> key[x] <= k;
        /*@ assert \forall integer x, y; 0 <= x < y <= i && x != j && y != j ==>
                key[x] < key[y] || (key[x] == key[y] && sort_from[x] < sort_from[y]); */
        key[j] = k;
        idx[j] = x;
        //@ ghost sort_from[j] = i;
        //@ assert \forall integer x; 0 <= x < j ==> key[x] <= key[j] && sort_from[x] < sort_from[j];
        //@ assert \forall integer x; j < x <= i ==> key[j] < key[x];
    }
}

void berth_plan_sort(uint64_t *key, int32_t *idx, uint64_t *tmp_key, int32_t *tmp_idx, int32_t n) {
    if (n <= FEW) {
        sort_few(key, idx, n);
        return;
    }
    uint64_t differ = 0;
    for (int32_t i = 1; i < n; i++) {
        differ |= key[i] ^ key[0];
    }
    // Digits of 11 bits are faster only for large n.
    const int bits = n < 8192 ? 8 : 11;
    const uint64_t mask = ((uint64_t) 1 << bits) - 1;
    uint64_t *from_key = key;
    uint64_t *to_key = tmp_key;
    int32_t *from_idx = idx;
    int32_t *to_idx = tmp_idx;
    uint32_t start[1 << 11];
    for (int shift = 0; shift < 64;) {
        if (((differ >> shift) & mask) == 0) {
            if ((differ >> shift) == 0) {
                break;
            }
            shift += __builtin_ctzll(differ >> shift);
            continue;
        }
        memset(start, 0, sizeof start[0] << bits);
        for (int32_t i = 0; i < n; i++) {
            start[(from_key[i] >> shift) & mask]++;
        }
        uint32_t at = 0;
        for (uint32_t digit = 0; digit <= mask; digit++) {
            uint32_t count = start[digit];
            start[digit] = at;
            at += count;
        }
        for (int32_t i = 0; i < n; i++) {
            uint32_t to = start[(from_key[i] >> shift) & mask]++;
            to_key[to] = from_key[i];
            to_idx[to] = from_idx[i];
        }
        uint64_t *swap_key = from_key;
        from_key = to_key;
        to_key = swap_key;
        int32_t *swap_idx = from_idx;
        from_idx = to_idx;
        to_idx = swap_idx;
        shift += bits;
    }
    if (from_key != key) {
        memcpy(key, from_key, (size_t) n * sizeof *key);
        memcpy(idx, from_idx, (size_t) n * sizeof *idx);
    }
}
