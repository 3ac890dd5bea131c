// SPDX-License-Identifier: Apache-2.0
// SIGBUS takes the way out that the thread has set up for the range it reads.
#include "core/sigbus.h"

#include <setjmp.h>
#include <signal.h>

static _Thread_local struct guard {
    sigjmp_buf way_out;
    const char *start, *end;
} *volatile guard;

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    const char *at = info->si_addr;

    if (guard != NULL && at >= guard->start && at < guard->end)
        siglongjmp(guard->way_out, 1);
    signal(number, SIG_DFL);
    raise(number);
}

void kvs_sigbus_handle(void)
{
    /* It is not blocked meanwhile: then the way out has no signal mask to set back. */
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER};

    sigaction(SIGBUS, &action, NULL);
}

bool kvs_sigbus_guard(const void *memory, size_t len, void (*work)(void *argument), void *argument)
{
    struct guard own = {.start = memory, .end = (const char *)memory + len};

    if (sigsetjmp(own.way_out, 0) != 0) {
        guard = NULL;
        return false;
    }
    guard = &own;
    work(argument);
    guard = NULL;
    return true;
}
