/* Two looks at each signal's handler.  A signal that comes between the library's change and the
 * second look is still the library's, for some milliseconds. */
#include "coll/fabric/handlers.h"

void handlers_keep(struct handlers *h)
{
    for (int number = 1; number < HANDLERS_END; number++)
        sigaction(number, NULL, &h->was[number]);
}

void handlers_restore(const struct handlers *h)
{
    struct sigaction now;

    for (int number = 1; number < HANDLERS_END; number++)
        if (sigaction(number, NULL, &now) == 0 && now.sa_handler != h->was[number].sa_handler)
            sigaction(number, &h->was[number], NULL);
}
