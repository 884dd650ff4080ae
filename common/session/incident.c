/* Frees incidents (incident.h).
 * driver_incident.c makes them, and report/ writes them to files. */
#include "session/incident.h"

#include <stdlib.h>

void incident_free(struct incident *i)
{
    if (!i)
        return;
    for (int k = 0; k < i->n; k++) {
        free(i->rank[k].host);
        free(i->rank[k].ring);
    }
    free(i->rank);
    free(i->text);
    free(i);
}
