// SPDX-License-Identifier: Apache-2.0
// Numbers that look random and are the same in every run (xorshift64).
#ifndef KVSEAL_TESTS_UNIT_RANDOM_H
#define KVSEAL_TESTS_UNIT_RANDOM_H

#include <stdint.h>

#define RANDOM_SEED 88172645463325252u

static uint64_t random_state = RANDOM_SEED;

static inline uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

#endif
